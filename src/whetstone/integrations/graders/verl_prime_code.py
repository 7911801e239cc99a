"""verl's ``prime_code``: the grader that many trainers took over from APPS and PRIME.

    whetstone exam whetstone.integrations.graders.verl_prime_code:grade --python PYTHON_WITH_VERL

The module is imported alone, without the packages above it, because they need torch and Ray.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.problem import Compare, Problem, Program, StdinTests


class PrimeCode:
    """``compute_score`` for problems with standard input and output, with all cases in one call."""

    def __init__(self) -> None:
        found = find_spec("verl")
        if found is None or found.origin is None:
            raise UserError("verl is not installed; pip install --no-deps verl numpy, or name its --python")
        folder = Path(found.origin).parent / "utils" / "reward_score"
        sys.path.insert(0, str(folder))
        self._module: Any = importlib.import_module("prime_code")
        self.version = f"verl {version('verl')}"

    def unsupported(self, problem: Problem, program: Program) -> str:
        """Return why the grader has no form for a problem, or an empty string."""
        if program.language != "python":
            return "only Python"
        if problem.checker is not None or not isinstance(problem.tests, StdinTests):
            return "only standard input and output without a checker"
        if problem.compare != Compare():
            return "only its own comparison"
        return ""

    def __call__(self, problem: Problem, program: Program) -> float:
        """Return the share of passed cases, as verl calls the grader."""
        tests = problem.tests
        assert isinstance(tests, StdinTests)
        cases = {
            "inputs": [case.input for case in tests.cases],
            "outputs": [case.output for case in tests.cases],
        }
        score, _ = self._module.compute_score(program.source, cases, continuous=True)
        return float(score)


grade = PrimeCode()

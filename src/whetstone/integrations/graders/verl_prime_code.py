"""verl's ``prime_code``: the grader that many trainers took over from APPS and PRIME.

    whetstone exam whetstone.integrations.graders.verl_prime_code:grade --python PYTHON_WITH_VERL

The module is imported alone, without the packages above it, because they need torch and Ray.
"""

from __future__ import annotations

import importlib
import sys
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.problem import Compare, Problem, Program, StdinTests


class PrimeCode:
    """``compute_score`` for problems with standard input and output, with all cases in one call."""

    @property
    def version(self) -> str:
        """The version of verl. Raises UserError if it is not installed."""
        self._folder()
        return f"verl {version('verl')}"

    @cached_property
    def _module(self) -> Any:
        sys.path.insert(0, str(self._folder()))
        return importlib.import_module("prime_code")

    def _folder(self) -> Path:
        found = find_spec("verl")
        if found is None or found.origin is None:
            raise UserError("verl is not installed; pip install --no-deps verl numpy, or name its --python")
        return Path(found.origin).parent / "utils" / "reward_score"

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

"""verl's ``prime_code``: the grader that many trainers took over from APPS and PRIME.

    whetstone exam whetstone_exam.graders.verl_prime_code:grade --python PYTHON_WITH_VERL

The module is imported alone, without the packages above it, because they need torch and Ray.
"""

from __future__ import annotations

import importlib
import sys
from functools import cached_property
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone_exam.graders.forms import no_stdin_form, stdin_cases
from whetstone_exam.graders.packages import installed_version, package_folder

_INSTALL = "pip install --no-deps verl numpy"


class PrimeCode:
    """``compute_score`` for problems with standard input and output, with all cases in one call."""

    @property
    def version(self) -> str:
        """The version of verl. Raises UserError if it is not installed."""
        return f"verl {installed_version('verl', _INSTALL)}"

    @cached_property
    def _module(self) -> Any:
        folder = package_folder("verl", _INSTALL)
        sys.path.insert(0, str(folder / "utils" / "reward_score"))
        return importlib.import_module("prime_code")

    def unsupported(self, problem: Problem, program: Program) -> str:
        """Return why the grader has no form for a problem, or an empty string."""
        return no_stdin_form(problem, program)

    def __call__(self, problem: Problem, program: Program) -> float:
        """Return the share of passed cases, as verl calls the grader."""
        score, _ = self._module.compute_score(program.source, stdin_cases(problem), continuous=True)
        return float(score)


grade = PrimeCode()

"""verl's ``prime_code``: the grader that many trainers took over from APPS and PRIME.

    whetstone exam whetstone_exam.graders.verl_prime_code:grade --python PYTHON_WITH_VERL

It takes problems with standard input and output. The module is imported alone, without the packages above it,
because they need torch and Ray.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone_exam.graders.forms import no_stdin_form, stdin_cases
from whetstone_exam.graders.package_grader import PackageGrader


@cache
def _module() -> Any:
    found = find_spec("verl")
    assert found is not None
    assert found.origin is not None
    sys.path.insert(0, str(Path(found.origin).parent / "utils" / "reward_score"))
    return importlib.import_module("prime_code")


def _score(problem: Problem, program: Program) -> float:
    """Return the share of passed cases, with all cases in one call, as verl calls the grader."""
    score, _ = _module().compute_score(program.source, stdin_cases(problem), continuous=True)
    return float(score)


grade = PackageGrader("verl", "verl", "pip install --no-deps verl numpy", no_stdin_form, _score)

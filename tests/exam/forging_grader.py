"""A grader that runs programs in its own interpreter, where they reach the descriptors of the exam."""

from __future__ import annotations

import sys
from typing import Any

from whetstone.core.problem import Problem, Program

ANSWERS = int(sys.argv[2])
"""The descriptor for answers, which a hostile program finds among the few that are open."""


def run_inside(problem: Problem, program: Program) -> bool:
    """Accept a program that sets ``right``."""
    names: dict[str, Any] = {"ANSWERS": ANSWERS}
    exec(program.source, names)
    return bool(names.get("right"))

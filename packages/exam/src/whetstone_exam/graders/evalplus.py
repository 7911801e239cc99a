"""EvalPlus' ``untrusted_check``, which calls a function in a forked process of the grader.

    whetstone exam whetstone_exam.graders.evalplus:grade --python PYTHON_WITH_EVALPLUS

It takes problems that call one function with positional arguments, compared as for HumanEval+. Expected
values are given, as EvalPlus computes them from its references before judging.
"""

from __future__ import annotations

import importlib
from typing import Any

from whetstone.core.problem import CallTests, Problem, Program
from whetstone_exam.graders.forms import call_values, no_literal_call_form
from whetstone_exam.graders.package_grader import PackageGrader

# Seconds that the reference took for a case. EvalPlus measures it; its limit is at least 4 s in any case.
_REFERENCE_S = 0.1


def _score(problem: Problem, program: Program) -> float:
    """Return 1 if the grader's status is ``pass``, else 0."""
    evaluation: Any = importlib.import_module("evalplus.eval")
    tests = problem.tests
    assert isinstance(tests, CallTests)
    arguments, expected = call_values(problem)
    reference_s = [_REFERENCE_S] * len(arguments)
    status, _ = evaluation.untrusted_check(
        "humaneval", program.source, arguments, tests.function, expected, 0, reference_s
    )
    return float(status == evaluation.PASS)


grade = PackageGrader("evalplus", "evalplus", "pip install evalplus", no_literal_call_form, _score)

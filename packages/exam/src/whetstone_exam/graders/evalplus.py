"""EvalPlus' ``untrusted_check``, which calls a function in a forked process of the grader.

    whetstone exam whetstone_exam.graders.evalplus:grade --python PYTHON_WITH_EVALPLUS

Expected values are given, as EvalPlus computes them from its references before judging.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

from whetstone.core.problem import CallTests, Problem, Program
from whetstone_exam.graders.forms import call_values, no_literal_call_form
from whetstone_exam.graders.packages import installed_version

# Seconds that the reference took for a case. EvalPlus measures it; its limit is at least 4 s in any case.
_REFERENCE_S = 0.1


class EvalPlus:
    """Problems that call one function with positional arguments, compared as for HumanEval+."""

    @property
    def version(self) -> str:
        """The version of EvalPlus."""
        return f"evalplus {installed_version('evalplus', 'pip install evalplus')}"

    @cached_property
    def _module(self) -> Any:
        return importlib.import_module("evalplus.eval")

    def unsupported(self, problem: Problem, program: Program) -> str:
        """Return why the grader has no form for a problem, or an empty string."""
        return no_literal_call_form(problem, program)

    def __call__(self, problem: Problem, program: Program) -> float:
        """Return 1 if the grader's status is ``pass``, else 0."""
        tests = problem.tests
        assert isinstance(tests, CallTests)
        arguments, expected = call_values(problem)
        status, _ = self._module.untrusted_check(
            "humaneval",
            program.source,
            arguments,
            tests.function,
            expected,
            0,
            [_REFERENCE_S] * len(arguments),
        )
        return float(status == self._module.PASS)


grade = EvalPlus()

"""LiveCodeBench's ``check_correctness``, which runs a program in a forked process of the grader.

    whetstone exam whetstone_exam.graders.livecodebench:grade --python PYTHON_WITH_LCB_RUNNER

The package is a checkout of LiveCodeBench, installed with ``pip install --no-deps -e``.
"""

from __future__ import annotations

import importlib
import json
from functools import cached_property
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone_exam.graders.forms import apps_cases, no_apps_form
from whetstone_exam.graders.packages import installed_version

_INSTALL = "pip install --no-deps -e CHECKOUT_OF_LIVECODEBENCH"
# The time limit of a case that LiveCodeBench's command line has by default, in seconds.
_TIMEOUT_S = 6


class LiveCodeBench:
    """Problems with standard input and output, and calls of a function with arguments of JSON."""

    @property
    def version(self) -> str:
        """The version of the package; its checkouts do not change it."""
        return f"livecodebench {installed_version('livecodebench', _INSTALL)}"

    @cached_property
    def _evaluation(self) -> Any:
        return importlib.import_module("lcb_runner.evaluation.compute_code_generation_metrics")

    @cached_property
    def _scores(self) -> Any:
        return importlib.import_module("lcb_runner.evaluation.pass_k_utils")

    def unsupported(self, problem: Problem, program: Program) -> str:
        """Return why the grader has no form for a problem, or an empty string."""
        return no_apps_form(problem, program)

    def __call__(self, problem: Problem, program: Program) -> float:
        """Return 1 if all cases passed, else 0.

        LiveCodeBench counts an exception of the grader as a failed program.
        """
        sample = {"input_output": json.dumps(apps_cases(problem))}
        request = ([program.source], sample, False, _TIMEOUT_S)
        results, _ = self._evaluation.evaluate_generations_by_problem(request)
        return float(self._scores.extract_instance_results({0: results})[0][0])


grade = LiveCodeBench()

"""LiveCodeBench's ``check_correctness``, which runs a program in a forked process of the grader.

    whetstone exam whetstone_exam.graders.livecodebench:grade --python PYTHON_WITH_LCB_RUNNER

It takes problems with standard input and output, and calls of a function with arguments of JSON. The package
is a checkout of LiveCodeBench, installed with ``pip install --no-deps -e``.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone_exam.graders.forms import apps_cases, no_apps_form
from whetstone_exam.graders.package_grader import PackageGrader

_INSTALL = "pip install --no-deps -e CHECKOUT_OF_LIVECODEBENCH"
# The time limit of a case that LiveCodeBench's command line has by default, in seconds.
_TIMEOUT_S = 6


def _score(problem: Problem, program: Program) -> float:
    """Return 1 if all cases passed, else 0.

    LiveCodeBench counts an exception of the grader as a failed program.
    """
    evaluation: Any = importlib.import_module("lcb_runner.evaluation.compute_code_generation_metrics")
    scores: Any = importlib.import_module("lcb_runner.evaluation.pass_k_utils")
    sample = {"input_output": json.dumps(apps_cases(problem))}
    results, _ = evaluation.evaluate_generations_by_problem(([program.source], sample, False, _TIMEOUT_S))
    return float(scores.extract_instance_results({0: results})[0][0])


grade = PackageGrader("livecodebench", "livecodebench", _INSTALL, no_apps_form, _score)

"""ScaleBox's handler of ``/common_evaluate_batch``, with all cases of a program in one request.

    whetstone exam whetstone_exam.graders.scalebox:grade --python PYTHON_WITH_SCALEBOX

It takes problems with standard input and output, and those whose tests are code. The package is a checkout of
ScaleBox, installed with ``pip install --no-deps -e``. It has the same name as SandboxFusion's, so the two
need separate interpreters.
"""

from __future__ import annotations

import asyncio
import re
import textwrap
from typing import Any

from whetstone.core.problem import AssertTests, Problem, Program
from whetstone_exam.graders.forms import no_script_form, no_stdin_form, stdin_cases
from whetstone_exam.graders.package_grader import PackageGrader
from whetstone_exam.graders.sandbox_fusion import sandbox_server_module

_INSTALL = "pip install --no-deps -e CHECKOUT_OF_SCALEBOX"


def no_form(problem: Problem, program: Program) -> str:
    """Return why the tests are neither standard input and output nor code without unittest."""
    if not isinstance(problem.tests, AssertTests):
        return no_stdin_form(problem, program)
    return no_script_form(problem, program) or ("no unittest" if problem.tests.unittest else "")


def _score(problem: Problem, program: Program) -> float:
    """Return 1 if the handler accepts the program, else 0."""
    api = sandbox_server_module("online_judge_api")
    request = api.SubmitRequest(**evaluate_request(problem, program))
    return float(asyncio.run(api.common_evaluate_batch(request)).accepted)


def evaluate_request(problem: Problem, program: Program) -> dict[str, Any]:
    """Return the message of ``/common_evaluate_batch`` with all cases of a problem."""
    tests = problem.tests
    if isinstance(tests, AssertTests):
        cases = {"type": "assert", "test": _check_code(tests), "entry_point": _entry_point(tests, program)}
    else:
        pairs = stdin_cases(problem)
        cases = {
            "type": "stdin_stdout",
            "fn_name": None,
            "input": pairs["inputs"],
            "output": pairs["outputs"],
        }
    config = {
        "language": "python",
        "provided_data": {"test_cases": cases},
        "extra": {"run_all_cases": True},
    }
    completion = f"```python\n{program.source}\n```"
    return {"dataset": "", "id": 0, "completion": completion, "config": config}


def _check_code(tests: AssertTests) -> str:
    """Return code that defines ``check``, which the handler calls with the entry point."""
    body = textwrap.indent("\n".join(tests.asserts or ()), "    ")
    checked = f"def check(*_):\n{body}"
    return f"{tests.setup}\n\n{tests.check or checked}\n"


def _entry_point(tests: AssertTests, program: Program) -> str:
    """Return the function that ``check`` gets. Asserts need none, so any that the program defines will do."""
    if tests.entry_point:
        return tests.entry_point
    found = re.search(r"^(?:def|class) (\w+)", program.source, re.MULTILINE)
    return found[1] if found else ""


grade = PackageGrader("ScaleBox", "sandbox", _INSTALL, no_form, _score)

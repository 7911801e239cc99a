"""SandboxFusion's handler of ``/run_code``: a script with tests passes if its exit status is 0.

    whetstone exam whetstone_exam.graders.sandbox_fusion:grade --python PYTHON_WITH_SANDBOX_FUSION

It takes problems whose tests are code. The package is a checkout of SandboxFusion, installed with
``pip install --no-deps -e``. Its default configuration runs programs as child processes without isolation.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone_exam.graders.forms import ending_code, no_script_form
from whetstone_exam.graders.package_grader import PackageGrader

_INSTALL = "pip install --no-deps -e CHECKOUT_OF_SANDBOXFUSION"


def _score(problem: Problem, program: Program) -> float:
    """Return 1 if the status of the run is ``Success``, as the project's data sets use it, else 0.

    Raises RuntimeError if the sandbox reports its own failure.
    """
    api = sandbox_server_module("sandbox_api")
    answer = asyncio.run(api.run_code(api.RunCodeRequest(**run_code_request(problem, program))))
    return float(run_succeeded(answer.status, answer.message))


def run_code_request(problem: Problem, program: Program) -> dict[str, Any]:
    """Return the message of ``/run_code`` that runs a program and its tests as one script."""
    return {"code": f"{program.source}\n\n{ending_code(problem)}", "language": "python"}


def run_succeeded(status: object, message: object) -> bool:
    """Return whether a run ended with ``Success``. Raises RuntimeError for a failure of the sandbox."""
    if status not in ("Success", "Failed"):
        raise RuntimeError(f"{status}: {message}")
    return status == "Success"


def sandbox_server_module(name: str) -> Any:
    """Import a module of the ``sandbox`` package's server, without its log messages."""
    module = importlib.import_module(f"sandbox.server.{name}")
    logging.disable(logging.CRITICAL)
    return module


grade = PackageGrader("SandboxFusion", "sandbox", _INSTALL, no_script_form, _score)

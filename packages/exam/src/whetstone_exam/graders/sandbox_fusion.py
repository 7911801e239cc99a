"""SandboxFusion's handler of ``/run_code``: a script with tests passes if its exit status is 0.

    whetstone exam whetstone_exam.graders.sandbox_fusion:grade --python PYTHON_WITH_SANDBOX_FUSION

The package is a checkout of SandboxFusion, installed with ``pip install --no-deps -e``. Its default
configuration runs programs as child processes without isolation.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from functools import cached_property
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone_exam.graders.forms import ending_code, no_script_form
from whetstone_exam.graders.packages import installed_version


class SandboxFusion:
    """Problems whose tests are code. The answer is the status of the run, as its data sets use it."""

    @property
    def version(self) -> str:
        """The version of the package; its checkouts do not change it."""
        return f"SandboxFusion {sandbox_version('CHECKOUT_OF_SANDBOXFUSION')}"

    @cached_property
    def _api(self) -> Any:
        return sandbox_server_module("sandbox_api")

    def unsupported(self, problem: Problem, program: Program) -> str:
        """Return why the grader has no form for a problem, or an empty string."""
        return no_script_form(problem, program)

    def __call__(self, problem: Problem, program: Program) -> float:
        """Return 1 if the status of the run is ``Success``, else 0.

        Raises RuntimeError if the sandbox reports its own failure.
        """
        request = self._api.RunCodeRequest(**run_code_request(problem, program))
        answer = asyncio.run(self._api.run_code(request))
        return float(run_succeeded(answer.status, answer.message))


def run_code_request(problem: Problem, program: Program) -> dict[str, Any]:
    """Return the message of ``/run_code`` that runs a program and its tests as one script."""
    return {"code": f"{program.source}\n\n{ending_code(problem)}", "language": "python"}


def run_succeeded(status: object, message: object) -> bool:
    """Return whether a run ended with ``Success``. Raises RuntimeError for a failure of the sandbox."""
    if status not in ("Success", "Failed"):
        raise RuntimeError(f"{status}: {message}")
    return status == "Success"


def sandbox_version(checkout: str) -> str:
    """Return the version of the package ``sandbox``; its checkouts do not change it."""
    return installed_version("sandbox", f"pip install --no-deps -e {checkout}")


def sandbox_server_module(name: str) -> Any:
    """Import a module of the ``sandbox`` package's server, without its log messages."""
    module = importlib.import_module(f"sandbox.server.{name}")
    logging.disable(logging.CRITICAL)
    return module


grade = SandboxFusion()

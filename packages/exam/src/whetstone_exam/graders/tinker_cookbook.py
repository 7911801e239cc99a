"""tinker-cookbook's ``sandbox_check_correctness``: its test runner as a script in SandboxFusion.

    whetstone exam whetstone_exam.graders.tinker_cookbook:grade --python PYTHON_WITH_BOTH

It takes problems with standard input and output, and calls of a function with arguments of JSON. The cookbook
sends its script to a SandboxFusion server by HTTP. Here the same request goes to the handler of that server
in this process, because an exam gives graders no network.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
from functools import cache
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone_exam.graders.forms import apps_cases, no_apps_form
from whetstone_exam.graders.package_grader import PackageGrader
from whetstone_exam.graders.sandbox_fusion import sandbox_server_module

_INSTALL = "pip install --no-deps tinker-cookbook"


class _LocalClient:
    """Replaces the cookbook's HTTP client of SandboxFusion."""

    def __init__(self) -> None:
        self._api = sandbox_server_module("sandbox_api")
        self.failure = ""

    async def run(self, code: str, files: dict[str, str], **limits: float) -> tuple[bool, dict[str, Any]]:
        """Return whether the status of the run is ``Success``. ``limits``: ``timeout``, in seconds."""
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
        request = self._api.RunCodeRequest(
            code=code, language="python", run_timeout=int(limits["timeout"]), files=encoded
        )
        answer = await self._api.run_code(request)
        self.failure = answer.message if answer.status == "SandboxError" else ""
        return answer.status == "Success", {}


@cache
def _client() -> _LocalClient:
    return _LocalClient()


def _score(problem: Problem, program: Program) -> float:
    """Return 1 if the script's exit status is 0, else 0.

    Raises RuntimeError if the sandbox fails. The cookbook itself gives reward 0 for that.
    """
    grading: Any = importlib.import_module("tinker_cookbook.recipes.code_rl.code_grading")
    grading._sandboxfusion_client = _client()
    passed, _ = asyncio.run(grading.sandbox_check_correctness(_sample(problem), program.source))
    if _client().failure:
        raise RuntimeError(_client().failure)
    return float(passed)


def _sample(problem: Problem) -> list[dict[str, Any]]:
    """Return the cases as the cookbook's data sets have them."""
    cases = apps_cases(problem)
    kind: dict[str, Any] = {"testtype": "stdin"}
    if "fn_name" in cases:
        kind = {"testtype": "functional", "metadata": {"func_name": cases["fn_name"]}}
    return [
        {"input": given, "output": wanted, **kind}
        for given, wanted in zip(cases["inputs"], cases["outputs"], strict=True)
    ]


grade = PackageGrader("tinker-cookbook", "tinker-cookbook", _INSTALL, no_apps_form, _score)

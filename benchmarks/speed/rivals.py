"""Other projects' judges, imported from checkouts given by path and called as those projects call them.

Standard library only beside the rival itself; the interpreter is one in which the rival can be imported.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import socket
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

Task = dict[str, Any]
_DONE = "all tests passed"


def _stdin_tests(task: Task) -> tuple[str, list[str], list[str]]:
    """Program, inputs and outputs; where a task is a script with tests, that script must reach its end."""
    if "script" in task:
        return f"{task['script']}\nprint({_DONE!r})\n", [""], [_DONE + "\n"]
    return task["source"], [given for given, _ in task["cases"]], [wanted for _, wanted in task["cases"]]


class PrimeCode:
    """``prime_code.compute_score`` as verl calls it: one call for a program, all its cases in one child.

    Imported through ``verl``, so the process that forks is as large as one that uses verl: torch, ray.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._score = self._module(options["verl"]).compute_score

    def _module(self, folder: str) -> ModuleType:
        sys.path.insert(0, folder)
        return importlib.import_module("verl.utils.reward_score.prime_code")

    def judge(self, tasks: list[Task]) -> int:
        """The number of tasks with full score."""
        accepted = 0
        for task in tasks:
            source, inputs, outputs = _stdin_tests(task)
            score, _ = self._score(source, {"inputs": inputs, "outputs": outputs}, continuous=True)
            accepted += score is True
        return accepted

    def close(self) -> None:
        """Nothing runs between batches."""


class PrimeCodeAlone(PrimeCode):
    """The same module imported without the packages above it: the process that forks holds numpy only."""

    def _module(self, folder: str) -> ModuleType:
        sys.path.insert(0, os.path.join(folder, "verl", "utils", "reward_score"))
        return importlib.import_module("prime_code")


class SandboxFusion:
    """The handler of SandboxFusion's ``/run_code``, in its default configuration, once for each case."""

    def __init__(self, options: dict[str, str]) -> None:
        os.chdir(options["sandbox_fusion"])
        sys.path.insert(0, options["sandbox_fusion"])
        self._api = importlib.import_module("sandbox.server.sandbox_api")
        logging.disable(logging.CRITICAL)

    def judge(self, tasks: list[Task]) -> int:
        """The number of tasks all of whose cases are right."""
        return asyncio.run(self._judge(tasks))

    async def _judge(self, tasks: list[Task]) -> int:
        accepted = 0
        for task in tasks:
            source, inputs, outputs = _stdin_tests(task)
            printed = [await self._run(source, given) for given in inputs]
            accepted += [text.split() for text in printed] == [wanted.split() for wanted in outputs]
        return accepted

    async def _run(self, source: str, given: str) -> str:
        request = self._api.RunCodeRequest(code=source, stdin=given, language="python")
        answer = await self._api.run_code(request)
        return answer.run_result.stdout if answer.status == "Success" else ""

    def close(self) -> None:
        """Nothing runs between batches."""


class ScaleBox:
    """The handler of ScaleBox's ``/common_evaluate_batch``, as configured by default, once a program."""

    def __init__(self, options: dict[str, str]) -> None:
        os.chdir(options["scalebox"])
        sys.path.insert(0, options["scalebox"])
        self._api = importlib.import_module("sandbox.server.online_judge_api")
        logging.disable(logging.CRITICAL)

    def judge(self, tasks: list[Task]) -> int:
        """The number of tasks accepted."""
        return asyncio.run(self._judge(tasks))

    async def _judge(self, tasks: list[Task]) -> int:
        accepted = 0
        for task in tasks:
            if "script" in task:
                cases = {"type": "assert", "test": task["tests"], "entry_point": task["entry_point"]}
            else:
                _, inputs, outputs = _stdin_tests(task)
                cases = {"type": "stdin_stdout", "fn_name": None, "input": inputs, "output": outputs}
            config = {
                "language": "python",
                "provided_data": {"test_cases": cases},
                "extra": {"run_all_cases": True},
            }
            completion = f"```python\n{task['source']}\n```"
            request = self._api.SubmitRequest(dataset="", id=0, completion=completion, config=config)
            accepted += (await self._api.common_evaluate_batch(request)).accepted
        return accepted

    def close(self) -> None:
        """Nothing runs between batches."""


class VerlSandboxFusion:
    """verl's ``sandbox_fusion.compute_score`` and one worker of SandboxFusion's server, joined by HTTP."""

    def __init__(self, options: dict[str, str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = f"-m uvicorn sandbox.server.server:app --host 127.0.0.1 --port {port} --log-level critical"
        self._server = subprocess.Popen([sys.executable, *command.split()], cwd=options["sandbox_fusion"])
        self._url = f"http://127.0.0.1:{port}/run_code"
        sys.path.insert(0, os.path.join(options["verl"], "verl", "utils", "reward_score"))
        self._score = importlib.import_module("sandbox_fusion").compute_score
        logging.disable(logging.CRITICAL)
        self._wait_for(port)

    def _wait_for(self, port: int) -> None:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise TimeoutError("SandboxFusion's server did not start")

    def judge(self, tasks: list[Task]) -> int:
        """The number of tasks with full score."""
        accepted = 0
        for task in tasks:
            source, inputs, outputs = _stdin_tests(task)
            tests = {"inputs": inputs, "outputs": outputs}
            score, _ = self._score(
                self._url, None, 1024, f"```python\n{source}\n```", tests, continuous=False
            )
            accepted += score == 1.0
        return accepted

    def close(self) -> None:
        """End the server."""
        self._server.terminate()
        self._server.wait()

"""The judge as a server of the Model Context Protocol, with the official SDK: tools that an agent can call.

Two tools judge a program against given tests, and run one. The limits are those of the server; a call can
only ask for less. Results name no expected value and quote no reason of a test.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallTests,
    Program,
    StdinTests,
    case_count,
    problem_from,
)
from whetstone.environments.feedback import describe_case, describe_verdict
from whetstone.integrations.tool_limits import ToolCallLimits
from whetstone.judge import Judge
from whetstone.judge.workers.wire import CommandResult, RunTask

T = TypeVar("T")
_KINDS = (StdinTests, CallTests, AssertTests)
_OUTPUT_BYTES = 16 << 20
# The judge answers at the deadline itself; this is for one that does not.
_SLACK_S = 60.0
# What a result quotes of an output, in characters; an agent reads it.
_SHOWN_OUTPUT = 20_000
_INSTRUCTIONS = (
    "Judges programs in isolation. `judge_program` compares a program with tests and returns a verdict for "
    "each case; `run_program` runs a program once and returns what it printed."
)
_Source = Annotated[str, Field(description="The source of the program.")]
_Language = Annotated[str, Field(description="Such as python, cpp, java or javascript.")]
_Seconds = Annotated[float | None, Field(description="CPU seconds; by default the most that is allowed.")]
_Memory = Annotated[float | None, Field(description="Memory in MiB; by default the most that is allowed.")]
_Tests = Annotated[
    dict[str, Any],
    Field(
        description='The tests, of one of three kinds: {"kind": "stdin", "cases": [{"input": "1 2\\n", '
        '"output": "3\\n"}]}, or {"kind": "call", "function": "add", "cases": [{"args": [1, 2], "expected": '
        '3}]}, or {"kind": "assert", "asserts": ["assert add(1, 2) == 3"]}.'
    ),
]


def serve_stdio(judge: Judge, limits: ToolCallLimits) -> None:
    """Serve the tools over standard input and output until the input ends."""
    server = MCPServer("whetstone", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools = JudgeTools(judge, limits)
    server.add_tool(tools.judge_program)
    server.add_tool(tools.run_program)
    server.run()


class JudgeTools:
    """The tools. Their docstrings and parameters are what an agent reads."""

    def __init__(self, judge: Judge, limits: ToolCallLimits) -> None:
        self._judge = judge
        self._limits = limits
        self._pending = 0

    async def judge_program(
        self,
        program: _Source,
        tests: _Tests,
        language: _Language = "python",
        cpu_s: _Seconds = None,
        memory_mb: _Memory = None,
    ) -> dict[str, Any]:
        """Judge a program against tests in a sandbox. Returns the verdict, the share of accepted cases as
        score, and the verdict and cost of each case, counted from 1. The score is null if the verdict can be
        forged, or the judge failed."""
        self._admit(program, tests, language)
        cpu_s, memory_mb = self._granted(cpu_s, memory_mb)
        try:
            problem = problem_from(
                {
                    "id": "tests",
                    "statement": "",
                    "language": language,
                    "tests": tests,
                    "limits": {"cpu_s": cpu_s, "memory_mb": memory_mb},
                }
            )
            if not isinstance(problem.tests, _KINDS):
                raise ToolError("`tests.kind` must be stdin, call or assert")
            if (count := case_count(problem)) > self._limits.max_cases:
                raise ToolError(f"{count} cases; this server judges at most {self._limits.max_cases} a call")
            submitted = self._judge.submit(
                problem, Program(language, program), deadline_s=self._limits.deadline_s
            )
        except UserError as error:
            raise ToolError(str(error)) from None
        judgement = await self._result(submitted, self._limits.deadline_s + _SLACK_S)
        return {
            "verdict": judgement.verdict.value,
            "meaning": describe_verdict(judgement.verdict),
            "score": judgement.score,
            "cases": [
                {
                    "case": case.index + 1,
                    "verdict": case.verdict.value,
                    "meaning": describe_case(case),
                    "cpu_s": round(case.cpu_s, 3),
                    "peak_mb": round(case.peak_bytes / (1 << 20), 1),
                }
                for case in judgement.cases
            ],
            "can_be_forged": judgement.shared_interpreter,
            "isolation": judgement.isolation,
        }

    async def run_program(
        self,
        program: _Source,
        language: _Language = "python",
        stdin: Annotated[str, Field(description="The text of its standard input.")] = "",
        cpu_s: _Seconds = None,
        memory_mb: _Memory = None,
    ) -> dict[str, Any]:
        """Run a program once in a sandbox. Returns how it ended, its exit code, output and cost."""
        self._admit(program, stdin, language)
        cpu_s, memory_mb = self._granted(cpu_s, memory_mb)
        memory_bytes = int(memory_mb * (1 << 20))
        task = RunTask(language, program, stdin.encode(), cpu_s, memory_bytes, _OUTPUT_BYTES)
        reply = await self._result(self._judge.run(task), self._limits.deadline_s)
        if reply.wrong or reply.fault:
            raise ToolError(reply.wrong or f"the program could not be run: {reply.fault}")
        result = reply.run or reply.compiled
        assert result is not None  # a reply without a fault has one of them
        return _run_result(result)

    def _admit(self, *arguments: object) -> None:
        """Raise ToolError for arguments that are too large, or if too many calls are in progress."""
        if self._pending >= self._limits.max_pending:
            raise ToolError(f"{self._pending} calls are in progress; try again when they have ended")
        if (size := len(json.dumps(arguments))) > self._limits.max_chars:
            raise ToolError(f"the arguments have {size} characters; at most {self._limits.max_chars}")

    def _granted(self, cpu_s: float | None, memory_mb: float | None) -> tuple[float, float]:
        """Return the limits of a call. Raises ToolError for more than the server allows."""
        most = {"cpu_s": self._limits.max_cpu_s, "memory_mb": self._limits.max_memory_mb}
        asked = {"cpu_s": cpu_s, "memory_mb": memory_mb}
        for name, value in asked.items():
            # The comparison is False for NaN.
            if value is not None and not 0 < value <= most[name]:
                raise ToolError(f"`{name}` is {value:g}; give a number above 0 and at most {most[name]:g}")
        return (
            self._limits.max_cpu_s if cpu_s is None else cpu_s,
            self._limits.max_memory_mb if memory_mb is None else memory_mb,
        )

    async def _result(self, future: Future[T], within_s: float) -> T:
        """Wait for a result; the end of the wait, or of the call, stops the program. Raises ToolError."""
        self._pending += 1
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise ToolError("the deadline of the call has passed") from None
        finally:
            self._pending -= 1
            future.cancel()


def _run_result(result: CommandResult) -> dict[str, Any]:
    """Return a run as an agent reads it. ``ended`` is ``refused`` for a program that does not compile."""
    shown: dict[str, Any] = {
        "ended": result.ended,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "cpu_s": round(result.cpu_s, 3),
        "peak_mb": round(result.peak_bytes / (1 << 20), 1),
    }
    for name, output in (("stdout", result.stdout), ("stderr", result.stderr)):
        text = output[: 4 * _SHOWN_OUTPUT].decode("utf-8", "replace")
        shown[name] = text[:_SHOWN_OUTPUT]
        shown[f"{name}_cut"] = len(text) > _SHOWN_OUTPUT or len(output) > 4 * _SHOWN_OUTPUT
    return shown

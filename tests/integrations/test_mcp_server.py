"""``whetstone judge mcp``, asked by the official client over standard input and output."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from typing import Any

import pytest

from whetstone.core.optional_packages import install_command

mcp = pytest.importorskip("mcp", reason=f"the extra mcp is missing: {install_command('mcp')}")

STDIN = {
    "kind": "stdin",
    "cases": [{"input": "1 2\n", "output": "3\n"}, {"input": "5 6\n", "output": "7319\n"}],
}
CALL = {"kind": "call", "function": "add", "cases": [{"args": [1, 2], "expected": 3}]}
ASSERT = {"kind": "assert", "asserts": ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]}
MANY = CALL | {"cases": [{"args": [1, 2], "expected": 3}] * 3}
PRINTS = "print(sum(map(int, input().split())))"
ADDS = "def add(a, b):\n    return a + b\n"
COMMAND = (
    sys.executable,
    "-m",
    "whetstone",
    "judge",
    "mcp",
    "--workers",
    "1",
    "--max-cpu",
    "2",
    "--max-cases",
    "2",
)
JUDGED = [
    ({"program": ADDS, "tests": CALL}, "accepted", 1.0, ["accepted"]),
    ({"program": PRINTS, "tests": STDIN}, "wrong_answer", 0.5, ["accepted", "wrong_answer"]),
    ({"program": ADDS, "tests": ASSERT}, "accepted", 1.0, ["accepted", "accepted"]),
    (
        {"program": "def add(a, b): return 3", "tests": ASSERT},
        "wrong_answer",
        0.5,
        ["accepted", "wrong_answer"],
    ),
    ({"program": "while True: pass", "tests": CALL, "cpu_s": 0.2}, "time_limit", 0.0, ["time_limit"]),
    ({"program": "", "tests": CALL}, "no_code", 0.0, []),
]
REFUSED = [
    ("judge_program", {"program": ADDS, "tests": CALL, "cpu_s": 2.5}, "above 0 and at most 2"),
    ("judge_program", {"program": ADDS, "tests": CALL, "memory_mb": 1e6}, "at most 1024"),
    ("judge_program", {"program": ADDS, "tests": MANY}, "3 cases; this server judges at most 2"),
    ("judge_program", {"program": ADDS, "tests": CALL, "language": "basic"}, "basic"),
    ("judge_program", {"program": ADDS, "tests": {"kind": "call"}}, "missing required field"),
    ("judge_program", {"program": ADDS, "tests": {"kind": "none"}}, "must be stdin, call or assert"),
    ("judge_program", {"program": "#" * (9 << 20), "tests": CALL}, "at most 8388608"),
    ("run_program", {"program": PRINTS, "cpu_s": 0}, "give a number above 0"),
    ("run_program", {"program": PRINTS, "language": "basic"}, "basic"),
]


async def ask_everything() -> None:
    server = mcp.StdioServerParameters(command=COMMAND[0], args=list(COMMAND[1:]), env=dict(os.environ))
    async with mcp.Client(server) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == {"judge_program", "run_program"}
        assert set(tools["judge_program"].input_schema["required"]) == {"program", "tests"}
        for arguments, verdict, score, cases in JUDGED:
            result = await client.call_tool("judge_program", arguments)
            found: dict[str, Any] = result.structured_content
            assert (found["verdict"], found["score"]) == (verdict, score), found
            assert [case["verdict"] for case in found["cases"]] == cases
            assert [case["case"] for case in found["cases"]] == [*range(1, len(cases) + 1)]
            assert "7319" not in str(result)
        for tool, arguments, message in REFUSED:
            refused = await client.call_tool(tool, arguments)
            assert refused.is_error
            assert message in refused.content[0].text
        ran = await client.call_tool("run_program", {"program": PRINTS, "stdin": "40 2"})
        assert ran.structured_content["stdout"] == "42\n"
        assert (ran.structured_content["ended"], ran.structured_content["exit_code"]) == ("exited", 0)
        # Also what is printed in bulk, and by a program that fails.
        loud = "import sys; print('ä' * 30_000); sys.exit('no')"
        failed = (await client.call_tool("run_program", {"program": loud})).structured_content
        assert (failed["exit_code"], failed["stderr"]) == (1, "no\n")
        assert (len(failed["stdout"]), failed["stdout_cut"], failed["stderr_cut"]) == (20_000, True, False)
        several = [client.call_tool("judge_program", {"program": ADDS, "tests": CALL}) for _ in range(5)]
        assert all(each.structured_content["score"] == 1 for each in await asyncio.gather(*several))


@pytest.mark.process
def test_an_agent_judges_and_runs_programs_within_the_limits_of_the_server() -> None:
    asyncio.run(ask_everything())


def test_calls_beyond_the_number_at_once_are_refused_and_a_cancelled_call_stops_its_program() -> None:
    from mcp.server.mcpserver.exceptions import ToolError

    from whetstone.integrations.mcp_server import JudgeTools
    from whetstone.integrations.tool_limits import ToolCallLimits

    class SlowJudge:
        def __init__(self) -> None:
            self.submitted: list[Future[Any]] = []

        def submit(self, *_: object, **options: object) -> Future[Any]:
            assert options == {"deadline_s": 120.0}
            self.submitted.append(Future())
            return self.submitted[-1]

    async def call() -> None:
        judge: Any = SlowJudge()
        tools = JudgeTools(judge, ToolCallLimits(max_pending=2))
        calls = [asyncio.create_task(tools.judge_program(ADDS, CALL)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ToolError, match="2 calls are in progress"):
            await tools.judge_program(ADDS, CALL)
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        assert [each.cancelled() for each in judge.submitted] == [True, True]

    asyncio.run(call())


@pytest.mark.process
@pytest.mark.parametrize("end", ["closed input", "SIGTERM"])
def test_the_server_ends_with_its_input_and_at_a_signal(end: str) -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        server.stdin.flush()
        assert b'"id":1' in server.stdout.readline()
        if end == "SIGTERM":
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == -signal.SIGTERM
        else:
            server.stdin.close()
            assert server.wait(60) == 0

"""``whetstone judge mcp``: serve the judge to agents, as tools of the Model Context Protocol."""

from __future__ import annotations

import signal

from whetstone.cli.flags import command
from whetstone.cli.judge_options import JudgeMachine
from whetstone.integrations.tool_limits import ToolCallLimits


@command(
    "mcp",
    help="serve the judge to agents, over standard input and output (MCP)",
    description="Serve two tools of the Model Context Protocol over standard input and output: "
    "`judge_program` judges a program against tests, `run_program` runs one. An agent's host starts this "
    "command. A call can ask for less than these limits, never for more. Needs the extra `mcp`.",
    epilog="example: whetstone judge mcp --workers 2 --max-cpu 5",
)
def run_mcp(limits: ToolCallLimits, machine: JudgeMachine) -> int:
    """Serve until the input ends."""
    from whetstone.integrations.mcp_server import serve_stdio

    # A thread of the SDK reads the input, and the end of Python would wait for it. A signal ends this process
    # at once, and the kernel ends the workers with it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    with machine.judge() as judge:
        serve_stdio(judge, limits)
    return 0

"""``whetstone judge``: judge programs from a shell, from files or one at a time."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any

from msgspec import Struct

from whetstone.cli import judge_environment, judge_serve
from whetstone.cli.flags import add_commands, command
from whetstone.cli.judge_options import CaseFlags, Isolation, JudgeMachine, OneProgram, ProgramFiles
from whetstone.core.flag import Flag
from whetstone.integrations.tool_limits import ToolCallLimits


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its actions."""
    parser = subparsers.add_parser(
        "judge",
        help="",  # in `VERBS`
        description="Run programs in isolation against the tests of problems. The exit status is 0 if "
        "everything was judged; only `judge one` has others for a rejected program.",
        epilog="example: whetstone judge one problem.json program.py",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_commands(actions, sys.modules[__name__], judge_serve, judge_environment)


# Each action imports what it needs: the imports of the other actions would take most of the time of `judge
# one`.


@command(
    "run",
    help="judge a file of programs; print one JSON judgement per line, and a table of verdicts",
    description="Judge a file of programs. Each line is a JSON object with `problem_id`, `source` and "
    "`language` (default: that of the problem), or with `program`, an object of these two. `id` is "
    "copied to the judgement.",
)
def judge_files(files: ProgramFiles, cases: CaseFlags, isolation: Isolation) -> int:
    """Judge a file of programs."""
    from whetstone.cli.judge_run import run_many

    return run_many(files, cases, isolation)


@command(
    "one",
    help="judge one program, and show each of its cases",
    description="Judge one program, and show each of its cases. The exit status is 0 if the program is "
    "accepted, 1 if it is not, 2 for invalid input, and 3 if the judge failed, so that there is no "
    "verdict.",
    epilog="example: whetstone judge one problem.json program.py --json",
)
def judge_one(files: OneProgram, cases: CaseFlags, isolation: Isolation) -> int:
    """Judge one program."""
    from whetstone.cli.judge_one import run_one

    return run_one(files, cases, isolation)


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


class _RewardService(Struct, frozen=True, kw_only=True):
    """The rewards, and the address of the service."""

    overrides: Annotated[
        tuple[str, ...], Flag("such as environment.reward=fraction", "KEY=VALUE", positional=True)
    ] = ()
    host: Annotated[str, Flag("the address to listen on", "ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Flag("0: any free port (default: 8090)", "N")] = 8090
    token_file: Annotated[
        str | None,
        Flag("the tokens of clients, one per line, sent as ?token=; needed for other machines", "FILE"),
    ] = None


@command(
    "rewards",
    help="serve rewards of replies over HTTP, for OpenRLHF's --reward.remote_url",
    description="Answer OpenRLHF's reward requests, by default from this machine only (see --host). "
    "KEY=VALUE are keys of a recipe (`environment.…`, `judge.…`), and `thinking_opened` and "
    "`no_reward`.",
    epilog="example: whetstone judge rewards --port 8090 environment.reward=fraction judge.workers=8",
)
def serve_rewards(service: _RewardService) -> int:
    """Serve until a signal ends it."""
    from whetstone.core.http.settings import Address, read_tokens
    from whetstone.core.settings import mapping_of
    from whetstone.integrations import reward_url
    from whetstone.integrations.openrlhf import RewardFunction

    reward = RewardFunction(**mapping_of(service.overrides))
    tokens = read_tokens(service.token_file) if service.token_file else ()
    reward_url.serve_rewards(Address(service.host, service.port, tokens=tokens), reward)
    return 0

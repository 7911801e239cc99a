"""``whetstone judge``: judge programs from a shell, from files or one at a time."""

from __future__ import annotations

from typing import Any

from whetstone.cli.flags import add_command
from whetstone.cli.judge_environment import add_action as add_environment_action
from whetstone.cli.judge_mcp import add_action as add_mcp_action
from whetstone.cli.judge_options import CaseFlags, Isolation, OneProgram, ProgramFiles
from whetstone.cli.judge_rewards import add_action as add_rewards_action
from whetstone.cli.judge_serve import add_action as add_serve_action


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
    add_command(
        actions,
        "run",
        judge_files,
        help="judge a file of programs; print one JSON judgement per line, and a table of verdicts",
        description="Judge a file of programs. Each line is a JSON object with `problem_id`, `source` and "
        "`language` (default: that of the problem), or with `program`, an object of these two. `id` is "
        "copied to the judgement.",
    )
    add_command(
        actions,
        "one",
        judge_one,
        help="judge one program, and show each of its cases",
        description="Judge one program, and show each of its cases. The exit status is 0 if the program is "
        "accepted, 1 if it is not, 2 for invalid input, and 3 if the judge failed, so that there is no "
        "verdict.",
        epilog="example: whetstone judge one problem.json program.py --json",
    )
    add_serve_action(actions)
    add_mcp_action(actions)
    add_rewards_action(actions)
    add_environment_action(actions)


# Each action imports what it needs: the imports of the other actions would take most of the time of `judge
# one`.


def judge_files(files: ProgramFiles, cases: CaseFlags, isolation: Isolation) -> int:
    """Judge a file of programs."""
    from whetstone.cli.judge_run import run_many

    return run_many(files, cases, isolation)


def judge_one(files: OneProgram, cases: CaseFlags, isolation: Isolation) -> int:
    """Judge one program."""
    from whetstone.cli.judge_one import run_one

    return run_one(files, cases, isolation)

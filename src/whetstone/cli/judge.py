"""``whetstone judge``: judge programs from a shell, from files or one at a time."""

from __future__ import annotations

import sys
from typing import Any

from whetstone.cli import judge_environment, judge_mcp, judge_rewards, judge_serve
from whetstone.cli.flags import add_commands, command
from whetstone.cli.judge_options import CaseFlags, Isolation, OneProgram, ProgramFiles


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
    add_commands(actions, sys.modules[__name__], judge_serve, judge_mcp, judge_rewards, judge_environment)


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

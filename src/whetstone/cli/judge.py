"""``whetstone judge``: judge programs from a shell, many from files or one with all its cases."""

from __future__ import annotations

import argparse
from typing import Any

from whetstone.cli.judge_environment import add_action as add_environment_action
from whetstone.cli.judge_environment import run_environment
from whetstone.cli.judge_options import add_judge_options
from whetstone.cli.judge_rewards import add_action as add_rewards_action
from whetstone.cli.judge_rewards import run_rewards
from whetstone.cli.judge_serve import add_action as add_serve_action
from whetstone.cli.judge_serve import run_serve
from whetstone.cli.options import add_replace_option


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its actions."""
    parser = subparsers.add_parser(
        "judge",
        description="Run programs in isolation against the tests of problems. Status 0 when everything was "
        "judged, whatever the verdicts.",
        epilog="example: whetstone judge one problem.json program.py",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    many = actions.add_parser(
        "run",
        help="judge a file of programs; one JSON judgement a line, and a table of verdicts",
        description="Judge a file of programs. Each line of it is a JSON object with `problem_id`, `source` "
        "and `language` (default: the problem's), or with `program`, an object of these two; `id` is handed "
        "through.",
    )
    many.add_argument(
        "--problems", required=True, metavar="FILE", help="problems: .jsonl, .jsonl.gz, .parquet"
    )
    many.add_argument("--programs", required=True, metavar="FILE", help="programs, as JSON lines")
    many.add_argument(
        "--out",
        metavar="FILE",
        help="where judgements go: there when all are judged (default: to standard output, as they come)",
    )
    add_replace_option(many)
    many.add_argument("--workers", type=int, default=0, metavar="N", help="0 (default): one for each core")
    one = actions.add_parser("one", help="judge one program, and show each of its cases")
    one.add_argument("problem", metavar="PROBLEM.json", help="a problem in the published schema")
    one.add_argument("program", metavar="PROGRAM", help="the program's source; - reads standard input")
    one.add_argument(
        "--language",
        metavar="NAME",
        help="the program's language (default: by the file's ending; of standard input: the problem's)",
    )
    for action in (many, one):
        action.add_argument(
            "--stop-at-first-failure", action="store_true", help="run no case after one that failed"
        )
        action.add_argument("--max-cases", type=int, metavar="N", help="judge a seeded choice of N cases")
        action.add_argument("--subset-seed", type=int, default=0, metavar="SEED", help="which choice")
        add_judge_options(action)
    add_serve_action(actions)
    add_rewards_action(actions)
    add_environment_action(actions)


def run(args: argparse.Namespace) -> int:
    """Run the verb. Status 0 when everything was judged."""
    # Each action imports what it needs: most of `judge one` would be spent on the imports of the others.
    match args.action:
        case "environment":
            return run_environment(args)
        case "serve":
            return run_serve(args)
        case "rewards":
            return run_rewards(args)
        case "one":
            from whetstone.cli.judge_one import run_one

            return run_one(args)
        case _:
            from whetstone.cli.judge_run import run_many

            return run_many(args)

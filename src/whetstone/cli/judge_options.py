"""How programs are judged, as options that verbs share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from whetstone.cli.judge_environment import add_environment_option
from whetstone.graders import COMPARISONS

if TYPE_CHECKING:
    from whetstone.judge import Judge


def add_workers_option(parser: Any) -> None:
    """Declare ``--workers``."""
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N", help="of the judge (default: one per core)"
    )


def add_judge_options(parser: Any) -> None:
    """Declare what ``judge_settings`` reads."""
    parser.add_argument(
        "--no-fork-per-case",
        dest="fork_per_case",
        action="store_false",
        help="run the cases of a Python program in one process: cheaper, less strict, marked",
    )
    parser.add_argument(
        "--minimum-tier",
        choices=("restricted", "userns", "root"),
        default="restricted",
        help="refuse to run with weaker isolation than this (see: whetstone doctor)",
    )
    add_environment_option(parser)


def judge_settings(args: argparse.Namespace) -> dict[str, Any]:
    """What ``Judge(…)`` takes of the options, and the comparisons of published graders."""
    names = ("fork_per_case", "minimum_tier", "environment")
    return {**{name: getattr(args, name) for name in names}, "comparisons": COMPARISONS}


def judge_of(args: argparse.Namespace, workers: int) -> Judge:
    """The judge that the options ask for, those that choose cases included."""
    from whetstone.judge import Judge

    return Judge(
        workers,
        stop_at_first_failure=args.stop_at_first_failure,
        max_cases=args.max_cases,
        subset_seed=args.subset_seed,
        **judge_settings(args),
    )

"""``whetstone report``: one self-contained page of a run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from whetstone.cli.options import add_replace_option
from whetstone.errors import UserError
from whetstone.outputs import check_outputs


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "report",
        description="Write one self-contained HTML page of a run, finished or not: result with intervals, "
        "curves, verdicts, and a browser of rollouts. It needs no network and no server.",
        epilog="example: whetstone report runs/tiny",
    )
    parser.add_argument("run", help="a run's folder, such as runs/tiny")
    parser.add_argument(
        "--out", help="the page's file (default: report.html in the run's folder, made anew each time)"
    )
    add_replace_option(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as one JSON object: evaluations before and after, their paired change, the "
        "last step; the page is written only with --out",
    )
    parser.add_argument(
        "--max-rollouts",
        type=int,
        default=400,
        metavar="N",
        help="how many rollouts the page holds, spread evenly over the steps (default: 400; 0: none)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from whetstone.report.page import write_page
    from whetstone.report.result import result_of
    from whetstone.report.run_data import read_run

    if args.max_rollouts < 0:
        raise UserError("--max-rollouts is a count of at least 0")
    if args.out:
        files = Path(args.run).iterdir() if Path(args.run).is_dir() else ()
        read = [file for file in files if file.suffix != ".html"]
        check_outputs(args.out, inputs=read, replace=args.replace)
    if args.json:
        print(json.dumps(result_of(read_run(args.run, max_rollouts=0)), indent=1))
    if args.out or not args.json:
        page = write_page(args.run, args.out, max_rollouts=args.max_rollouts)
        print(page, file=sys.stderr if args.json else sys.stdout)
    return 0

"""``whetstone report``: write one self-contained page of a run or of evaluations."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from whetstone.cli.flags import add_command, run_command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs


class _Reporting(Struct, frozen=True, kw_only=True):
    """The run or the evaluations of the page."""

    folder: Annotated[
        str,
        Flag(
            "a run's folder, such as runs/tiny, or the --out folder of an evaluation",
            "FOLDER",
            positional=True,
        ),
    ]
    other: Annotated[
        str | None, Flag("the folder of another evaluation to compare with", "OTHER", positional=True)
    ] = None
    out: Annotated[
        str | None,
        Flag(
            "the file of the page (default: report.html in the folder of the run, evaluation.html or "
            "comparison.html in that of the evaluation; a default file is overwritten)",
            "FILE",
        ),
    ] = None
    replace: Annotated[bool, Flag("replace an existing output")] = False
    json: Annotated[
        bool,
        Flag(
            "for a run: print the result as one JSON object: evaluations before and after, their paired "
            "change, the last step; the page is written only with --out"
        ),
    ] = False
    max_rollouts: Annotated[
        int,
        Meta(ge=0),
        Flag("for a run: rollouts on the page, evenly spread over the steps; 0: none", "N"),
    ] = 400
    replies: Annotated[
        int, Meta(ge=1), Flag("for an evaluation: replies of each problem on the page", "N")
    ] = 4


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    add_command(
        subparsers,
        "report",
        report,
        help="write one self-contained HTML page of a run or of evaluations",
        description="Write one self-contained HTML page. For a run, finished or not, it has the result with "
        "intervals, curves, verdicts, and all rollouts to browse. For an evaluation it has the figures, and "
        "every problem with its prompt, replies, programs and cases; for two, the problems gained and lost. "
        "The page needs no network and no server.",
        epilog="examples: whetstone report runs/tiny; whetstone report before after --out comparison.html",
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    return run_command(args)


def report(args: _Reporting) -> int:
    """Write the page of a run, of one evaluation, or of two."""
    folder = Path(args.folder)
    is_run = (folder / "metrics.jsonl").is_file()
    if args.other or (not is_run and next(folder.rglob("evaluation.json"), None)):
        return _report_evaluations(args)
    if not is_run:
        raise UserError(
            f"{folder}: contains no evaluation.json and no metrics.jsonl; give the folder of an "
            "evaluation or of a run, such as runs/tiny"
        )
    from whetstone.report.page import write_page
    from whetstone.report.run_data import read_run, result_of

    if args.out:
        files = Path(args.folder).iterdir() if Path(args.folder).is_dir() else ()
        # The page may replace an earlier page, but none of the files that it is made from.
        inputs = [file for file in files if file.suffix != ".html"]
        check_outputs(args.out, inputs=inputs, replace=args.replace)
    if args.json:
        print(json.dumps(result_of(read_run(args.folder, max_rollouts=0)), indent=1))
    if args.out or not args.json:
        page = write_page(args.folder, args.out, max_rollouts=args.max_rollouts)
        print(page, file=sys.stderr if args.json else sys.stdout)
    return 0


def _report_evaluations(args: _Reporting) -> int:
    from whetstone.report.evaluation_page import write_evaluation_page

    if args.json:
        raise UserError("--json is for a run; use `whetstone eval --json` for an evaluation")
    if args.out:
        folders = [folder for folder in (args.folder, args.other) if folder]
        files = [file for folder in folders for file in Path(folder).rglob("*.json*")]
        check_outputs(args.out, inputs=files, replace=args.replace)
    print(write_evaluation_page(args.folder, args.other, args.out, replies=args.replies))
    return 0

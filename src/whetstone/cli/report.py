"""``whetstone report``: write one self-contained page of runs or of evaluations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from whetstone.cli.flags import command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.folder_contents import other_folder
from whetstone.core.outputs import check_outputs


class _Reporting(Struct, frozen=True, kw_only=True):
    """The runs or the evaluations of the page."""

    folder: Annotated[
        str,
        Flag(
            "a run's folder, such as runs/tiny, or the --out folder of an evaluation",
            "FOLDER",
            positional=True,
        ),
    ]
    others: Annotated[
        tuple[str, ...],
        Flag("another evaluation to compare with, or the folders of further runs", "OTHER", positional=True),
    ] = ()
    out: Annotated[
        str | None,
        Flag(
            "the file of the page (default: report.html in the folder of the run, evaluation.html or "
            "comparison.html in that of the evaluation, or of the first run; a default file is overwritten)",
            "FILE",
        ),
    ] = None
    replace: Annotated[bool, Flag("replace an existing output")] = False
    json: Annotated[
        bool,
        Flag(
            "for runs: print the result as one JSON object: evaluations before and after, their paired "
            "change, the last step, and the differences between runs; the page is written only with --out"
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


@command(
    "report",
    description="Write one self-contained HTML page. For a run, finished or not, it has the result with "
    "intervals, curves, verdicts, and all rollouts to browse. For an evaluation it has the figures, and "
    "every problem with its prompt, replies, programs and cases; for two, the problems gained and lost. "
    "For several runs, it has their curves, their generated tokens, and the paired difference of each to "
    "the first. "
    "The page needs no network and no server.",
    epilog="examples: whetstone report runs/tiny; whetstone report before after --out comparison.html; "
    "whetstone report runs/quickstart runs/quickstart-ssd",
)
def report(args: _Reporting) -> int:
    """Write the page of a run, of several, of one evaluation, or of two."""
    folders = [args.folder, *args.others]
    no_runs = [folder for folder in folders if not (Path(folder) / "metrics.jsonl").is_file()]
    if args.others and not no_runs:
        return _report_runs(args, folders)
    if len(args.others) > 1:
        raise UserError(
            f"{other_folder(no_runs[0], 'metrics.jsonl')}; give the folders of runs, or two evaluations"
        )
    if args.others or (no_runs and next(Path(args.folder).rglob("evaluation.json"), None)):
        return _report_evaluations(args)
    if no_runs:
        raise UserError(
            f"{other_folder(args.folder, 'evaluation.json or metrics.jsonl')}; give the folder of an "
            "evaluation or of a run, such as runs/tiny"
        )
    from whetstone.report.page import write_page
    from whetstone.report.run_data import read_run, result_of

    _check_out(args, folders)
    if args.json:
        print(json.dumps(result_of(read_run(args.folder, max_rollouts=0)), indent=1))
    if args.out or not args.json:
        page = write_page(args.folder, args.out, max_rollouts=args.max_rollouts)
        print(page, file=sys.stderr if args.json else sys.stdout)
    return 0


def _check_out(args: _Reporting, runs: list[str]) -> None:
    """Raise UserError if the page would replace a file that is not an earlier page."""
    if args.out:
        # The page may replace an earlier page, but none of the files that it is made from.
        inputs = [file for run in runs for file in Path(run).iterdir() if file.suffix != ".html"]
        check_outputs(args.out, inputs=inputs, replace=args.replace)


def _report_runs(args: _Reporting, folders: list[str]) -> int:
    from whetstone.report.curves import read_runs, run_comparison, write_curves_page

    _check_out(args, folders)
    runs = read_runs(folders)
    if args.json:
        print(json.dumps(run_comparison(runs), indent=1))
    if args.out or not args.json:
        print(write_curves_page(runs, args.out), file=sys.stderr if args.json else sys.stdout)
    return 0


def _report_evaluations(args: _Reporting) -> int:
    from whetstone.report.evaluation_page import write_evaluation_page

    if args.json:
        raise UserError("--json is for runs; use `whetstone eval --json` for an evaluation")
    if args.out:
        files = [file for folder in (args.folder, *args.others) for file in Path(folder).rglob("*.json*")]
        check_outputs(args.out, inputs=files, replace=args.replace)
    other = args.others[0] if args.others else None
    print(write_evaluation_page(args.folder, other, args.out, replies=args.replies))
    return 0

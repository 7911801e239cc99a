"""``whetstone data convert``: a set as another file, or in the columns that another trainer reads."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from whetstone.cli.data_show import SET_HELP
from whetstone.cli.options import add_replace_option
from whetstone.data.dataset import open_problems, place_of
from whetstone.data.files import write_problems
from whetstone.data.layouts.write import LAYOUTS, layout_files, layout_named, write_layout
from whetstone.errors import UserError
from whetstone.outputs import check_outputs

_EXAMPLES = """\
examples:
  whetstone data convert problems.jsonl problems.parquet
  whetstone data convert sets/clean verl --layout verl --skip
  whetstone data convert sets/clean:train train.parquet --layout trl

layouts:
"""


def add_action(actions: Any) -> None:
    """Declare the action."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "convert",
        help="write a set as another file, or in the layout of verl, PrimeIntellect, TRL or open-r1",
        description="Write a set to a problem file (the ending decides the format), or, with --layout, in "
        "the columns that another trainer reads. A problem that a layout cannot carry is an error, or, with "
        "--skip, left out and counted.",
        epilog=_EXAMPLES + "\n".join(f"  {x.name:11} {x.title}: {x.carries}" for x in LAYOUTS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SET", help=SET_HELP)
    parser.add_argument(
        "target",
        metavar="OUT",
        help="a .jsonl, .jsonl.gz or .parquet file; with --layout a .parquet file, or a folder of them",
    )
    parser.add_argument("--layout", metavar="NAME", help=f"one of {', '.join(LAYOUTS)}")
    add_replace_option(parser)
    parser.add_argument("--skip", action="store_true", help="leave out what the layout cannot carry")


def run(args: argparse.Namespace) -> int:
    """Run the action. Raises UserError for what cannot be read, written or carried."""
    target, inputs = Path(args.target), [place_of(args.source)]
    if args.layout is None:
        if args.skip:
            raise UserError("--skip leaves out what a layout cannot carry; add --layout NAME")
        check_outputs(target, inputs=inputs, replace=args.replace)
        count = write_problems(target, open_problems(args.source))
        print(f"{target}: {count} problems, {target.stat().st_size} bytes")
        return 0
    layout = layout_named(args.layout)
    check_outputs(*layout_files(args.source, target).values(), inputs=inputs, replace=args.replace)
    written = write_layout(args.source, target, layout, skip=args.skip)
    for file, rows in written.files.items():
        print(f"{file}: {rows} rows")
    for reason, count in written.left_out.items():
        print(f"left out: {count} ({reason})")
    return 0

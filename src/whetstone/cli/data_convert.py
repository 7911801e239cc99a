"""``whetstone data convert``: write a set as another file, or with the columns that another trainer reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from whetstone.cli.data_show import SET_HELP
from whetstone.cli.flags import command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs
from whetstone.core.settings import NonEmpty, Section
from whetstone.data.dataset import open_problems, place_of
from whetstone.data.export_formats import (
    EXPORT_FORMATS,
    ExportFormatName,
    export_files,
    export_format_named,
    write_export,
)
from whetstone.data.files import write_problems

_EXAMPLES = """\
examples:
  whetstone data convert problems.jsonl problems.parquet
  whetstone data convert sets/clean verl --export-format verl --skip
  whetstone data convert sets/clean:train train.parquet --export-format trl

export formats:
"""


_NAMES = ", ".join(EXPORT_FORMATS)


class Conversion(Section):
    """A set, and the file or folder to write."""

    source: Annotated[NonEmpty, Flag(SET_HELP, "SET", positional=True)]
    target: Annotated[
        NonEmpty,
        Flag(
            "a .jsonl, .jsonl.gz or .parquet file; with --export-format a .parquet file, or a folder of them",
            "OUT",
            positional=True,
        ),
    ]
    export_format: Annotated[ExportFormatName | None, Flag(f"one of {', '.join(EXPORT_FORMATS)}", "NAME")] = (
        None
    )
    skip: Annotated[bool, Flag("leave out problems that the export format cannot represent")] = False
    replace: Annotated[bool, Flag("replace an existing output")] = False


@command(
    "convert",
    help="write a set as another file, or in the export format of verl or TRL",
    description="Write a set to a problem file (the ending decides the format), or, with "
    "--export-format, with the columns that another trainer reads. A problem that the export format "
    "cannot represent is an error. With --skip it is left out and counted.",
    epilog=_EXAMPLES + "\n".join(f"  {x.name:11} {x.title}: {x.carries}" for x in EXPORT_FORMATS.values()),
)
def convert(options: Conversion) -> int:
    """Write the set. Raises UserError for unreadable input, unwritable output, and problems that the format
    cannot represent."""
    target, inputs = Path(options.target), [place_of(options.source)]
    if options.export_format is None:
        if options.skip:
            raise UserError("--skip is for an export format; add --export-format NAME")
        check_outputs(target, inputs=inputs, replace=options.replace)
        count = write_problems(target, open_problems(options.source))
        print(f"{target}: {count} problems, {target.stat().st_size} bytes")
        return 0
    export_format = export_format_named(options.export_format)
    check_outputs(*export_files(options.source, target).values(), inputs=inputs, replace=options.replace)
    written = write_export(options.source, target, export_format, skip=options.skip)
    for file, rows in written.files.items():
        print(f"{file}: {rows} rows")
    for reason, count in written.left_out.items():
        print(f"left out: {count} ({reason})")
    return 0

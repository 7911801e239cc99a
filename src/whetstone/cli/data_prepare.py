"""``whetstone data prepare``: import public datasets into one set of problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.flags import command
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs
from whetstone.core.progress import Progress
from whetstone.core.settings import NonEmpty, Section
from whetstone.data.card import PAGE_FILE, SourceRecord, read_card
from whetstone.data.dataset import check_destination
from whetstone.data.prepare import PreparationPlan, prepare

_PREPARE = """\
Read public datasets and write one dataset: a folder with train.parquet and validation.parquet,
decisions.jsonl (every row that gave no problem, with the reason) and the data card, card.html.

A source is read from the hub (SOURCE, or SOURCE@REVISION) or from local files: SOURCE=PATH, where PATH is
a file or a folder of files in the published format (.parquet, .jsonl, .json, .arrow, .csv).
`whetstone data show sources` lists the sources.
Complete downloads are kept, so a repeated command does not fetch them again.
"""
_EXAMPLES = """\
examples:
  whetstone data prepare apps --out sets/apps
  whetstone data prepare apps=downloads/apps/train.jsonl taco --out sets/mix --validation 0.05
  whetstone data prepare apps@main --split test --max-problems 200 --out sets/look

then:
  whetstone data validate sets/apps --out sets/apps-valid
"""


class PrepareFiles(Section):
    """The dataset to write."""

    out: Annotated[NonEmpty, Flag("the dataset folder to write", "DIR")]
    replace: Annotated[bool, Flag("replace an existing output")] = False


@command(
    "prepare",
    help="import public datasets into one dataset of problems, with a data card",
    description=_PREPARE,
    epilog=_EXAMPLES,
)
def run_prepare(plan: PreparationPlan, files: PrepareFiles) -> int:
    """Import sources into a dataset."""
    out, requests = Path(files.out), plan.requests()
    local_paths = [request.path for request in requests if request.path is not None]
    # Checked before the download of the sources, which may take long.
    check_outputs(check_destination(out), inputs=local_paths, replace=files.replace)
    with Progress() as progress:
        records = prepare(requests, plan, out, progress)
    console = Console()
    console.print(_summary(records))
    card = read_card(out)
    if card is not None:
        counts = ", ".join(f"{count} in {split}" for split, count in card.problems.items())
        console.print(
            f"{out}: {counts}; dropped rows and reasons: {out / PAGE_FILE}", soft_wrap=True, highlight=False
        )
        for split in (name for name, count in card.problems.items() if not count):
            share = f"--validation {plan.validation:g}, the share of problems drawn for validation"
            text = f"[bold red]warning:[/] the split {split} is empty with {share}"
            console.print(text, soft_wrap=True, highlight=False)
    return 0


def _summary(records: list[SourceRecord]) -> Table:
    table = Table("source", box=None, pad_edge=False)
    for column in ("rows", "problems"):
        table.add_column(column, justify="right")
    table.add_column("from")
    for record in records:
        origin = f"{record.hub_id} at {record.commit[:12]}" if record.commit else "local files"
        table.add_row(Text(record.name), f"{record.rows:,}", f"{record.problems:,}", Text(origin))
    return table

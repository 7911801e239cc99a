"""``whetstone data prepare`` and ``whetstone data sources``: public datasets into one set of problems."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.options import add_replace_option
from whetstone.data.card import PAGE_FILE, SourceRecord, read_card
from whetstone.data.dataset import check_destination
from whetstone.data.prepare import Plan, Wanted, prepare
from whetstone.data.sources.source import Source
from whetstone.data.sources.table import SOURCE_NAMES, all_sources, source_named
from whetstone.errors import UserError
from whetstone.outputs import check_outputs
from whetstone.progress import Progress, Work

_PREPARE = """\
Read public datasets and write one dataset: a folder with train.parquet and validation.parquet,
decisions.jsonl (what happened to every row that is no problem, and why) and the data card, card.html.

A source is read from the hub, or from files you have: SOURCE=PATH, where PATH is a file or a folder of
files in the dataset's own form (.parquet, .jsonl, .json, .arrow, .csv). `whetstone data sources` lists them.
An interrupted run goes on where it was when the same command is given again.
"""
_EXAMPLES = """\
examples:
  whetstone data prepare apps --out sets/apps
  whetstone data prepare apps=downloads/apps/train.jsonl taco --out sets/mix --validation 0.05
  whetstone data prepare apps --revision apps=main --split test --max-problems 200 --out sets/look

then:
  whetstone data validate sets/apps --out sets/apps-valid
"""


def add_actions(actions: Any) -> None:
    """Declare the two actions."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "prepare",
        help="public datasets into one dataset of problems, with its data card",
        description=_PREPARE,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sources", metavar="SOURCE[=PATH]", nargs="+", help="a source, and its files if here")
    parser.add_argument("--out", metavar="DIR", required=True, help="the dataset folder to write")
    add_replace_option(parser)
    parser.add_argument(
        "--revision", metavar="SOURCE=REV", action="append", default=[], help="another revision on the hub"
    )
    parser.add_argument(
        "--split", metavar="NAME", action="append", default=[],
        help="a split of the sources to read; may be repeated (default: train where there is one, else all)",
    )  # fmt: skip
    parser.add_argument(
        "--validation",
        metavar="SHARE",
        type=float,
        default=0.02,
        help="held out for validation (default 0.02)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the choice for validation (default 0)")
    parser.add_argument(
        "--max-problems", metavar="N", type=int, default=0, help="only the first N problems of each source"
    )
    listing = actions.add_parser(
        "sources",
        help="the public datasets that prepare reads: where they are, their columns, the known revision",
        description="List the public datasets that `whetstone data prepare` reads.",
    )
    listing.add_argument("name", metavar="SOURCE", nargs="?", help="one source in full")


def run_prepare(args: argparse.Namespace) -> int:
    """Run ``prepare``."""
    plan = Plan(
        _wanted(args.sources, _revisions(args.revision)),
        splits=args.split,
        validation=args.validation,
        seed=args.seed,
        max_problems=args.max_problems,
    )
    out = Path(args.out)
    given = [wanted.path for wanted in plan.wanted if wanted.path is not None]
    check_outputs(check_destination(out), inputs=given, replace=args.replace)
    with _Display() as display:
        records = prepare(plan, out, display)
    console = Console()
    console.print(_summary(records))
    card = read_card(out)
    if card is not None:
        counts = ", ".join(f"{count} in {split}" for split, count in card.problems.items())
        console.print(
            f"{out}: {counts}; what was dropped and why: {out / PAGE_FILE}", soft_wrap=True, highlight=False
        )
    return 0


def run_sources(args: argparse.Namespace) -> int:
    """Run ``sources``."""
    console = Console()
    if args.name:
        console.print(_page(source_named(args.name)), soft_wrap=True)
        return 0
    for source in all_sources():
        hub = f"{source.hub_id or 'not on the hub'} {(source.revision or '')[:12]}"
        text = Text.assemble((source.name, "bold"), "  ", source.title, "\n")
        text.append(f"    {hub.strip()}: {', '.join(source.columns)}\n", style="dim")
        console.print(text, end="", soft_wrap=True)
    console.print("\nOne of them in full: whetstone data sources SOURCE", highlight=False)
    return 0


def _wanted(words: Iterable[str], revisions: dict[str, str]) -> list[Wanted]:
    wanted: list[Wanted] = []
    for word in words:
        name, given, path = word.partition("=")
        if given and not path:
            raise UserError(f"{word}: give a file or folder after the =, or {name} alone for the hub")
        source = source_named(name)
        wanted.append(Wanted(source, Path(path) if given else None, revisions.pop(name, None)))
    if revisions:
        raise UserError(f"--revision {next(iter(revisions))}=…: that source is not prepared here")
    return wanted


def _revisions(words: Iterable[str]) -> dict[str, str]:
    revisions: dict[str, str] = {}
    for word in words:
        name, _, revision = word.partition("=")
        if not revision or name not in SOURCE_NAMES:
            raise UserError(f"--revision {word}: give SOURCE=REV, with a source of this command")
        revisions[name] = revision
    return revisions


def _page(source: Source) -> Text:
    facts = [
        ("on the hub", source.hub_id or "not there; give its files"),
        ("known revision", source.revision or ("the newest is taken" if source.hub_id else "")),
        ("licence", source.licence),
        *((f"split {split}", glob) for split, glob in source.files.items()),
        *((f"column {name}", words) for name, words in source.columns.items()),
        ("example", source.command_line),
    ]
    width = max(len(name) for name, _ in facts)
    text = Text.assemble((source.name, "bold"), "\n", source.title, "\n")
    for name, words in facts:
        if words:
            text.append(f"\n{name:{width}}  ", style="dim").append(words)
    return text


def _summary(records: list[SourceRecord]) -> Table:
    table = Table("source", box=None, pad_edge=False)
    for column in ("rows", "problems"):
        table.add_column(column, justify="right")
    table.add_column("from")
    for record in records:
        origin = f"{record.hub_id} at {record.commit[:12]}" if record.commit else "local files"
        table.add_row(Text(record.name), f"{record.rows:,}", f"{record.problems:,}", Text(origin))
    return table


class _Display:
    """The progress of the import, on standard error. A source counts in bytes, with a note of its rows."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._work: Work | None = None

    def __enter__(self) -> _Display:
        self._progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.__exit__(*error)

    def begin(self, source: str, size: int) -> None:
        """See Watcher."""
        self._work = self._progress.begin(source, size or None, counted=False)

    def advance(self, size_read: int, rows: int, problems: int) -> None:
        """See Watcher."""
        if self._work is not None and rows % 20 == 0:  # a note for every row would cost more than the row
            self._work.update(size_read, f"{rows:,} rows, {problems:,} problems")

    def finish(self, record: SourceRecord, *, earlier: bool) -> None:
        """See Watcher. The table at the end has the numbers of the source."""
        if self._work is not None:
            self._progress.end(self._work)
            self._work = None

    def gather(self, problems: int) -> None:
        """See Watcher."""
        self._work = self._progress.begin(f"writing {problems:,} problems", counted=False)

"""``whetstone data import``: problems from a table of any columns, by a map of them."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.cli.data_prepare import PrepareFiles, run_prepare
from whetstone.cli.flags import command
from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.flag import Flag
from whetstone.core.outputs import check_outputs, write_file
from whetstone.core.problem import case_count
from whetstone.core.settings import NonEmpty, Section, read_settings
from whetstone.data.dataset import check_destination
from whetstone.data.decisions import ProblemDecision
from whetstone.data.prepare import ImportSettings, PreparationPlan
from whetstone.data.sources.locate import locate
from whetstone.data.sources.mapped import guess_map
from whetstone.data.sources.source import ColumnMap, DatasetSource, Row, import_rows
from whetstone.data.sources.table import MAP_ENDINGS, mapped_source, source_named

_DESCRIPTION = """\
Read problems from a table with any columns: a file (.csv, .jsonl, .json, .parquet, .arrow), a folder of
them, or a dataset of the hub. Without --map it guesses which columns are the parts of a problem.

It prints the columns, and what the first 1,000 rows become. With --out it writes the dataset, and the map as
OUT.map.yaml, which is a source of `whetstone data prepare` and of pipelines.
"""
_EXAMPLES = """\
parts of a map:
  statement=COLUMN with tests=COLUMN, or with inputs=COLUMN and outputs=COLUMN
  function, starter, reference, passed, id, time_limit, memory_limit, difficulty, tags: other columns
  kind=stdin, call, assert or pytest: the kind of the tests, if their form does not show it
  A dot leads into objects and lists: tests=info.tests, inputs=cases.in

examples:
  whetstone data import questions.csv
  whetstone data import questions.csv --map statement=question,inputs=in,outputs=out --out sets/questions
  whetstone data import more.csv --map sets/questions.map.yaml --out sets/more
  whetstone data import hub:ORG/NAME --files 'data/train-*.parquet'
"""
_HUB = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:@(.+))?")
_EXAMPLE_ROWS = 20
_LOOK_ROWS = 1000
_SHOWN_PROBLEMS = 3
_EXAMPLE_WIDTH = 60
_WIDTH = 160


class ImportedTable(Section):
    """The table, the map of its columns, and the dataset to write."""

    table: Annotated[
        NonEmpty, Flag("a file or folder with rows, or hub:ORG/NAME[@REVISION]", "FILE", positional=True)
    ]
    map: Annotated[
        tuple[NonEmpty, ...],
        Flag("PART=COLUMN of each part, with commas, or a map file (default: guessed)", "MAP"),
    ] = ()
    name: Annotated[NonEmpty | None, Flag("name of the source (default: that of the file)", "NAME")] = None
    files: Annotated[NonEmpty | None, Flag("on the hub: a glob of the files to read", "GLOB")] = None
    out: Annotated[NonEmpty | None, Flag("the dataset folder to write", "DIR")] = None
    replace: Annotated[bool, Flag("replace existing outputs")] = False


@command(
    "import",
    help="read problems from a table with any columns: CSV, JSON Lines, Parquet, or a dataset of the hub",
    description=_DESCRIPTION,
    epilog=_EXAMPLES,
)
def run_import(table: ImportedTable, plan: ImportSettings) -> int:
    """Show what the rows become, and write the dataset. Raises UserError for an unknown column."""
    map_file = f"{table.out}.map.yaml" if table.out else None
    fields = _table_fields(table)
    out = check_destination(Path(table.out)) if table.out else None
    check_outputs(out, map_file, inputs=[table.table, *table.map], replace=table.replace)
    # The map is not known yet, and not needed to read rows.
    unmapped = mapped_source({**fields, "map": {"statement": "-", "tests": "-"}}, table.table)
    examples = [row for _, row in itertools.islice(_rows(unmapped, plan), _EXAMPLE_ROWS)]
    parts = _given_map(table.map) or guess_map(examples)
    names = [name for name in dict.fromkeys(name for row in examples for name in row) if name]
    Console().print(_column_table(names, examples, parts))
    if "statement" not in parts or not ("tests" in parts or {"inputs", "outputs"} <= parts.keys()):
        print(
            "no columns look like a statement and its tests; name them: --map statement=COLUMN,tests=COLUMN\n"
            "or --map 'statement=COLUMN,inputs=COLUMN,outputs=COLUMN'"
        )
        return 1
    _check_columns(parts, names, table.table)
    fields["map"] = parts
    source = mapped_source(fields, "--map")
    chosen = shlex.quote(",".join(f"{part}={column}" for part, column in parts.items()))
    print(f"\n{'the map' if table.map else 'guessed'}: --map {chosen}")
    _show_problems(source, itertools.islice(_rows(source, plan), _LOOK_ROWS))
    if table.out and map_file:
        write_file(map_file, [yaml.safe_dump(fields, sort_keys=False, allow_unicode=True).encode()])
        settings = PreparationPlan.model_validate({**plan.model_dump(), "sources": {map_file: {}}})
        try:
            run_prepare(settings, PrepareFiles(out=table.out, replace=table.replace))
        except UserError:
            # The same command with another map finds nothing in its way.
            Path(map_file).unlink()
            raise
        print(f"{map_file}: the map, a source: whetstone data prepare {map_file} --out DIR")
    return 0


def _table_fields(table: ImportedTable) -> dict[str, Any]:
    """Return the fields of a map file that state where the rows are."""
    hub = _HUB.fullmatch(table.table)
    if table.table.startswith("hub:") and hub is None:
        raise UserError(f"{table.table}: write hub:ORG/NAME or hub:ORG/NAME@REVISION")
    name = table.name or (hub[1].rpartition("/")[2] if hub else Path(table.table).name.partition(".")[0])
    fields: dict[str, Any] = {"name": re.sub(r"[^A-Za-z0-9_.-]+", "-", name), "title": table.table}
    if hub is None:
        return {**fields, "path": table.table}
    revision = {"revision": hub[2]} if hub[2] else {}
    return {**fields, "hub_id": hub[1], **revision, "files": {"train": table.files or "*train*"}}


def _rows(source: DatasetSource, plan: ImportSettings) -> Iterator[tuple[str, Row]]:
    for part in locate(source, None, splits=plan.splits).parts:
        yield from part.read(None)


def _given_map(words: tuple[str, ...]) -> dict[str, str]:
    """Return the map of a command line or of a map file. Raises UserError for words of another form."""
    if len(words) == 1 and words[0].endswith(MAP_ENDINGS):
        columns = source_named(words[0]).map
        return columns.model_dump(exclude_none=True) if columns else {}
    pairs = [word.partition("=") for word in words]
    for part, _, column in pairs:
        if not column:
            raise UserError(f"--map: `{part}` names no column; write PART=COLUMN, or a map file (.yaml)")
    parts = {part.strip(): column.strip() for part, _, column in pairs}
    return read_settings(ColumnMap, parts, where="--map").model_dump(exclude_none=True) if parts else {}


def _check_columns(parts: dict[str, str], names: list[str], table: str) -> None:
    for part, column in parts.items():
        known = column in names or (part != "id" and column.partition(".")[0] in names)
        if part != "kind" and not known:
            hint, listed = did_you_mean(column, names), ", ".join(names)
            raise UserError(f"--map: {part}={column}: no column `{column}`{hint} ({table} has: {listed})")


def _column_table(names: list[str], rows: list[Row], parts: dict[str, str]) -> Table:
    """Return the columns, each with its first value that is not empty and the parts that it holds."""
    table = Table("column", "example", "part", box=None, pad_edge=False)
    for name in names:
        value = next((row[name] for row in rows if row.get(name) not in (None, "", [], {})), "")
        text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        used = ", ".join(part for part, path in parts.items() if name in (path, path.partition(".")[0]))
        table.add_row(*map(Text, (name, _begin(text, _EXAMPLE_WIDTH), used)))
    return table


def _show_problems(source: DatasetSource, rows: Iterable[tuple[str, Row]]) -> None:
    """Print the first problems of rows, and the drops by reason."""
    count, drops = 0, dict[str, list[str]]()
    for result in import_rows(source, rows):
        if isinstance(result, ProblemDecision):
            drops.setdefault(result.reason, []).append(result.detail)
            continue
        count += 1
        if count <= _SHOWN_PROBLEMS:
            tests = msgspec.json.encode(result.tests).decode(errors="replace")
            counts = f"{case_count(result)} tests, {len(result.references)} references"
            print(f"\n{result.id}\n  {_begin(result.statement, _WIDTH)}")
            print(f"  {counts}: {_begin(tests, _WIDTH)}")
    dropped = sum(map(len, drops.values()))
    print(f"\nthe first {count + dropped:,} rows: {count:,} problems, {dropped:,} dropped")
    for reason, details in sorted(drops.items(), key=lambda item: -len(item[1])):
        print(f"  {len(details):,} {reason}, such as {details[0]}")


def _begin(text: str, length: int) -> str:
    """Return the beginning of a text on one line."""
    signs = (sign if sign.isprintable() else " " for sign in text[:length])
    return "".join(signs).strip() + "…" * (len(text) > length)

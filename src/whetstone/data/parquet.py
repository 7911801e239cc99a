"""Problems as rows of a Parquet file.

The fields id, statement, language, starter, source, environment and kind of tests have a column each, for
filtering.
Nested parts are columns of JSON, so a value is read back exactly.
``kind`` repeats ``tests.kind`` and must agree with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from whetstone.core.closing import Closing
from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.parquet import pa, pq
from whetstone.core.problem import Problem
from whetstone.data.explain import explain, known_columns

_TEXT = ("id", "statement", "language", "starter", "source")
_JSON = ("tests", "compare", "checker", "scoring", "limits", "references", "wrong", "meta")
# Bounds of a group of rows in memory. Problems with large tests have megabytes each, so a bound of rows is
# not enough.
_ROWS = 512
_BYTES = 16 * 2**20
_BATCH = 32
_SCHEMA = pa.schema([pa.field(name, pa.string()) for name in (*_TEXT, "kind", *_JSON, "environment")])


def read_rows(file: Path) -> Iterator[tuple[int, Problem]]:
    """Yield (row number from 1, problem). Raises UserError naming file, row and field."""
    try:
        with pq.ParquetFile(file) as table:
            _check_columns(file, list(table.schema_arrow.names))
            batches = table.iter_batches(batch_size=_BATCH)
            rows = (row for batch in batches for row in cast(list[dict[str, Any]], batch.to_pylist()))
            for number, row in enumerate(rows, 1):
                yield number, _problem(row, f"{file}, row {number}")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as Parquet: {error}; is the file complete?") from None


def write_rows(file: Path, problems: Iterable[Problem]) -> int:
    """Write problems to ``file`` and return their number."""
    with RowWriter(file) as writer:
        for problem in problems:
            writer.add(problem)
        return writer.count


class RowWriter(Closing):
    """Writes a file problem by problem, holding a group of rows in memory. The same problems give the
    same bytes."""

    def __init__(self, file: Path) -> None:
        self.count = 0
        self._rows: list[dict[str, str | None]] = []
        self._bytes = 0
        self._writer = pq.ParquetWriter(file, _SCHEMA, compression="zstd")

    def add(self, problem: Problem) -> None:
        """Write one problem, which must be plain data (see ``files.check_plain``)."""
        row = _row(problem)
        self._rows.append(row)
        # Characters are close enough to bytes for a bound of memory.
        self._bytes += sum(len(value) for value in row.values() if value)
        self.count += 1
        if len(self._rows) >= _ROWS or self._bytes >= _BYTES:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=_SCHEMA))
        self._rows, self._bytes = [], 0


def _row(problem: Problem) -> dict[str, str | None]:
    row: dict[str, str | None] = {name: getattr(problem, name) for name in _TEXT}
    row["environment"] = problem.environment or None
    row["kind"] = _kind(problem)
    for name in _JSON:
        row[name] = msgspec.json.encode(getattr(problem, name)).decode()
    return row


def _problem(row: dict[str, Any], place: str) -> Problem:
    fields: dict[str, Any] = {}
    for name, value in row.items():
        # A null means that the writer left the field out. Only a starter can be null itself.
        if name == "kind" or (value is None and name != "starter"):
            continue
        fields[name] = _nested(name, value, place) if name in _JSON else value
    try:
        problem = msgspec.convert(fields, Problem)
    except msgspec.ValidationError as error:
        raise UserError(f"{place}: {explain(error)}") from None
    if row.get("kind") not in (None, _kind(problem)):
        raise UserError(f"{place}: `kind` is {row['kind']!r}, but `tests.kind` is {_kind(problem)!r}")
    return problem


def _nested(name: str, value: Any, place: str) -> Any:
    if not isinstance(value, str):
        raise UserError(f"{place}: `{name}` is a {type(value).__name__}; the column holds JSON as text")
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UserError(f"{place}: `{name}` is not JSON: {error}") from None


def _check_columns(file: Path, names: list[str]) -> None:
    known = (*known_columns(), "kind")
    for name in names:
        if name not in known:
            raise UserError(f"{file}: unknown column `{name}`{did_you_mean(name, known)}")
    for name in ("id", "statement", "tests"):
        if name not in names:
            raise UserError(f"{file}: column `{name}` is missing")


def _kind(problem: Problem) -> str:
    return str(problem.tests.__struct_config__.tag)

"""The interface of a sink: another tool that shows the metrics. At each start it gets the missing records."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

from msgspec import Struct

from whetstone.core.outputs import write_file
from whetstone.report.metrics import Record


class MetricRow(Struct, frozen=True):
    """A flat record. Names begin with the kind of the record: ``train/reward/mean``, ``eval/time/eval``."""

    step: int
    kind: str
    numbers: dict[str, float]
    at: float | None
    """Unix seconds; None if the record does not have its time."""


class SinkRun(Struct, frozen=True):
    """The run for a sink: its name, the folder of the sink, and the project."""

    name: str
    folder: Path
    project: str = ""


class Sink(Protocol):
    """An open sink.

    remembers: it keeps the rows of earlier starts. Otherwise it gets all rows again.
    """

    remembers: bool

    def show(self, row: MetricRow) -> None:
        """Show one row."""
        ...

    def close(self) -> None:
        """Send the remaining rows."""
        ...


def own_id(folder: Path) -> str:
    """Return the permanent id of the run in this folder. The first call creates it."""
    file = folder / "id"
    if not file.exists():
        write_file(file, [secrets.token_hex(8).encode()])
    return file.read_text()


def row_of(record: Record) -> MetricRow:
    """Return the numbers of a record, with those under ``time`` as ``time/NAME``."""
    kind, clock = record["kind"], cast("dict[str, Any]", record.get("time", {}))
    return MetricRow(record["step"], kind, dict(_numbers(record, kind)), clock.get("at"))


def _numbers(record: Record, kind: str) -> Iterator[tuple[str, float]]:
    clock = cast("dict[str, Any]", record.get("time", {}))
    flat = {**record, **{f"time/{name}": value for name, value in clock.items() if name != "at"}}
    for name, value in flat.items():
        if name != "step" and isinstance(value, int | float):
            yield f"{kind}/{name}", float(value)

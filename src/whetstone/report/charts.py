"""Charts as data: columns of numbers by training step, which the script of a page draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from whetstone.report.metrics import Record, seconds_by_step

Values = list[float | None]
MAX_POINTS = 400


class Series(Struct, frozen=True, omit_defaults=True):
    """One line or one layer of columns. None is a gap. ``color`` is the name of a CSS variable.

    low, high: the bounds of a band around the line, empty without one.
    """

    label: str
    color: str
    values: Values
    low: Values = []
    high: Values = []
    faint: bool = False


class Chart(Struct, frozen=True, omit_defaults=True):
    """Series over the same steps, or over another number that ``axis`` names.

    unit: title of the vertical axis.
    percent: the values are shares in [0, 1].
    end: the steps that the horizontal axis reaches at least.
    top: the vertical axis reaches from 0 to this value; None fits the axis to the values.
    stacked: the series are the layers of columns.
    """

    id: str
    title: str
    steps: list[float]
    series: list[Series]
    unit: str = ""
    percent: bool = False
    top: float | None = None
    stacked: bool = False
    axis: str = ""
    end: float | None = None


class Panel(Struct, frozen=True, omit_defaults=True):
    """A section of a page: a main chart and small ones below it, or rows of a table.

    multiples: all charts are small ones.
    """

    title: str
    note: str
    charts: list[Chart] = []
    rows: list[tuple[str, str]] = []
    wide: bool = False
    multiples: bool = False


class Columns:
    """The numbers of records by key, thinned to at most ``limit`` rows.

    A row is the mean over ``width`` neighbouring records; its step is the last one of them. Records without
    any of ``keys`` are left out. A number that is not finite counts as missing.
    """

    def __init__(
        self, records: Sequence[Mapping[str, Any]], keys: Sequence[str], limit: int = MAX_POINTS
    ) -> None:
        used = [record for record in records if any(key in record for key in keys)]
        self.width = math.ceil(len(used) / limit) or 1
        rows = [used[start : start + self.width] for start in range(0, len(used), self.width)]
        self.steps = [float(row[-1]["step"]) for row in rows]
        self.values: dict[str, Values] = {key: [_mean(row, key) for row in rows] for key in keys}


def chart_of(
    id: str, title: str, steps: Sequence[float], series: Sequence[Series], **options: Any
) -> Chart | None:
    """Return a chart of the series that have a value; None without any. ``options``: see Chart."""
    # A series without values would get an entry in the legend and no line.
    drawn = [each for each in series if any(value is not None for value in each.values)]
    return Chart(id, title, [*steps], drawn, **options) if drawn else None


def clock_of(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return the hours of training at some of the steps of a run, for the axis of charts."""
    points = [(0, 0.0), *seconds_by_step(records)]
    # Counted from the end, so that the last step is among them.
    kept = points[:: -math.ceil(len(points) / MAX_POINTS)][::-1]
    return {
        "steps": [float(step) for step, _ in kept],
        "hours": [float(f"{seconds / 3600:.6g}") for _, seconds in kept],
    }


def smooth(values: Values, window: int) -> Values:
    """Return the trailing mean over ``window`` values. The first values are means over fewer."""
    return [_average(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]


def share_top(series: Sequence[Series]) -> float:
    """Return the next fifth above all shares, at most 1."""
    tops = [value for each in series for value in (*each.values, *each.high) if value is not None]
    return min(1.0, (int(max(tops, default=1.0) * 5 - 1e-9) + 1) / 5)


def _mean(records: Sequence[Mapping[str, Any]], key: str) -> float | None:
    found = [record.get(key) for record in records]
    return _average([value if isinstance(value, int | float) else None for value in found])


def _average(values: Values) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    # Six digits are more than a chart shows, and keep the page small.
    return float(f"{math.fsum(known) / len(known):.6g}") if known else None

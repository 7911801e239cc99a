"""Axes: round tick values, and numbers as short text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Points = list[tuple[float, float | None]]
Format = Callable[[float], str]


def nice_ticks(low: float, high: float, count: int = 4, *, whole: bool = False) -> list[float]:
    """About ``count`` round values (1, 2 or 5 times a power of ten apart) that lie in [low, high].

    ``whole`` asks for integers. The result is never empty when low <= high.
    """
    if high <= low:
        return [low]
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * 0.999)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)] or [low]


def padded_range(values: Sequence[float]) -> tuple[float, float]:
    """The span of the values with a tenth of air at both ends; all-positive data start at zero
    when zero is near, so that small changes are not blown up."""
    low, high = min(values), max(values)
    if low >= 0 and low <= 0.5 * high:
        return 0.0, high * 1.08 or 1.0
    air = (high - low) * 0.1 or abs(high) * 0.1 or 1.0
    return low - air, high + air


def short(value: float) -> str:
    """A number in at most about six characters: 0.0123, 1.5, 340, 12k, 3e-07."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e6 or size < 1e-3:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace(".0e", "e")
    if size >= 1e4:
        return f"{value / 1000:.3g}k"
    return f"{value:.3g}" if size < 100 else f"{value:.0f}"


def percent(value: float) -> str:
    """A share in [0, 1] as a percentage with one decimal."""
    return f"{value * 100:.1f}%"


def whole_percent(value: float) -> str:
    """A share in [0, 1] as a percentage without decimals."""
    return f"{value * 100:.0f}%"


def thin(points: Points, limit: int) -> tuple[Points, int]:
    """At most ``limit`` points: means over runs of equally many neighbours, and how many that is."""
    if len(points) <= limit:
        return points, 1
    width = math.ceil(len(points) / limit)
    thinned: Points = []
    for start in range(0, len(points), width):
        run = points[start : start + width]
        known = [y for _, y in run if y is not None]
        thinned.append((run[-1][0], math.fsum(known) / len(known) if known else None))
    return thinned, width


def smoothed(points: Points, window: int) -> Points:
    """The trailing mean over ``window`` points; the first ones average what there is."""
    out: Points = []
    for i, (x, _) in enumerate(points):
        known = [y for _, y in points[max(0, i + 1 - window) : i + 1] if y is not None]
        out.append((x, math.fsum(known) / len(known) if known else None))
    return out

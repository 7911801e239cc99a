"""Charts as inline SVG. Colours are CSS variables, so that a chart follows light and dark.

Every chart returns its SVG and the data for its tooltip, which the page's script reads by id.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whetstone.report.scales import Format, Points, nice_ticks, padded_range, short


@dataclass(frozen=True)
class Line:
    """One line: its points (None breaks it), a CSS colour, and a band (x, low, high) around it."""

    label: str
    color: str
    points: Points
    band: Sequence[tuple[float, float, float]] = ()
    faint: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Layer:
    """One layer of a stack: a value for each x of the chart."""

    label: str
    color: str
    values: Sequence[float]


@dataclass(frozen=True)
class Chart:
    """A finished chart: its id, SVG text, legend entries (label, colour), and what its tooltip shows."""

    identity: str
    svg: str
    legend: list[tuple[str, str]]
    hover: dict[str, Any]


@dataclass
class Frame:
    """The plot area and its two linear scales, in SVG units."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: int = 560
    height: int = 230
    left: int = 46
    right: int = 14
    top: int = 10
    bottom: int = 26
    parts: list[str] = field(default_factory=list[str])

    def x(self, value: float) -> float:
        """The place of an x value; a single one stands in the middle."""
        inner = self.width - self.left - self.right
        if self.x_high == self.x_low:
            return self.left + inner / 2
        return self.left + (value - self.x_low) / (self.x_high - self.x_low) * inner

    def y(self, value: float) -> float:
        """The place of a y value, clamped to the plot."""
        share = (value - self.y_low) / ((self.y_high - self.y_low) or 1.0)
        return self.height - self.bottom - min(max(share, 0.0), 1.0) * (self.height - self.top - self.bottom)

    def axes(self, y_format: Format, *, y_ticks: int = 4, x_ticks: int = 6) -> None:
        """Grid lines with labels on the left, steps below."""
        right = self.width - self.right
        for value in nice_ticks(self.y_low, self.y_high, y_ticks):
            y = self.y(value)
            self.parts.append(f'<line class="grid" x1="{self.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            label = html.escape(y_format(value))
            self.parts.append(
                f'<text class="tick" x="{self.left - 7}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'
            )
        for value in nice_ticks(self.x_low, self.x_high, x_ticks, whole=True):
            place = f'x="{self.x(value):.1f}" y="{self.height - 8}"'
            self.parts.append(f'<text class="tick" {place} text-anchor="middle">{value:.0f}</text>')

    def svg(self, identity: str, label: str) -> str:
        """The whole drawing, with a cursor line for the tooltip."""
        names = f'data-chart="{html.escape(identity)}" role="img" aria-label="{html.escape(label)}"'
        box = f'viewBox="0 0 {self.width} {self.height}"'
        cursor = f'<line class="cursor" y1="{self.top}" y2="{self.height - self.bottom}"/>'
        return f'<svg class="chart" {names} {box}>{"".join(self.parts)}{cursor}</svg>'


def line_chart(
    identity: str,
    label: str,
    lines: Sequence[Line],
    *,
    y_range: tuple[float, float] | None = None,
    y_format: Format = short,
    small: bool = False,
    width: int = 0,
) -> Chart | None:
    """Lines over steps; None when no line has a point. ``width`` is in SVG units, 0 for the usual."""
    values = [y for line in lines for _, y in line.points if y is not None]
    if not values:
        return None
    values += [edge for line in lines for _, low, high in line.band for edge in (low, high)]
    xs = [x for line in lines for x, y in line.points if y is not None]
    low, high = y_range or padded_range(values)
    frame = Frame(min(xs), max(xs), low, high)
    if small:
        frame.width, frame.height, frame.left, frame.right = width or 270, 120, 44, 10
    frame.axes(y_format, y_ticks=3 if small else 4, x_ticks=4 if small else 6)
    for line in lines:
        frame.parts.extend(_band(frame, line))
    for line in lines:
        frame.parts.extend(_strokes(frame, line))
    hover = [
        {
            "label": e.label,
            "color": e.color,
            "points": [[x, y_format(y)] for x, y in e.points if y is not None],
        }
        for e in lines
    ]
    legend = [(line.label, line.color) for line in lines]
    return Chart(identity, frame.svg(identity, label), legend, _hover(frame, hover))


def area_chart(
    identity: str, label: str, xs: Sequence[float], layers: Sequence[Layer], y_format: Format
) -> Chart | None:
    """Layers stacked to shares of their sum at each x; None when everything is zero."""
    totals = [sum(layer.values[i] for layer in layers) for i in range(len(xs))]
    used = [layer for layer in layers if any(layer.values)]
    if not used:
        return None
    frame = Frame(min(xs), max(xs), 0.0, 1.0)
    frame.axes(y_format)
    floor = [0.0] * len(xs)
    for layer in used:
        top = [f + (v / t if t else 0.0) for f, v, t in zip(floor, layer.values, totals, strict=True)]
        # A single step would be an area without width: it becomes a column.
        edges = [frame.x(x) for x in xs] if len(xs) > 1 else [frame.x(xs[0]) - 30, frame.x(xs[0]) + 30]
        lower, upper = (floor, top) if len(xs) > 1 else (floor * 2, top * 2)
        there = [f"{x:.1f},{frame.y(y):.1f}" for x, y in zip(edges, upper, strict=True)]
        back = [f"{x:.1f},{frame.y(y):.1f}" for x, y in zip(edges, lower, strict=True)]
        frame.parts.append(f'<polygon points="{" ".join(there + back[::-1])}" style="fill:{layer.color}"/>')
        floor = top
    return Chart(identity, frame.svg(identity, label), _legend(used), _stack_hover(frame, xs, used, short))


def bar_chart(
    identity: str, label: str, xs: Sequence[float], layers: Sequence[Layer], y_format: Format
) -> Chart | None:
    """Columns of stacked values, in the shape of a wide panel; None when everything is zero."""
    used = [layer for layer in layers if any(layer.values)]
    if not used:
        return None
    totals = [sum(layer.values[i] for layer in used) for i in range(len(xs))]
    spread = (max(xs) - min(xs)) / max(len(xs) - 1, 1) or 1.0
    frame = Frame(min(xs) - spread / 2, max(xs) + spread / 2, 0.0, max(totals) * 1.05, width=780, height=270)
    frame.axes(y_format)
    width = min(44.0, (frame.x(spread) - frame.x(0.0)) * 0.78)
    for i, x in enumerate(xs):
        floor = 0.0
        for layer in used:
            top = floor + layer.values[i]
            y, height = frame.y(top), frame.y(floor) - frame.y(top)
            place = f'x="{frame.x(x) - width / 2:.1f}" y="{y:.1f}"'
            size = f'width="{width:.1f}" height="{height:.1f}"'
            frame.parts.append(f'<rect {place} {size} style="fill:{layer.color}"/>')
            floor = top
    return Chart(identity, frame.svg(identity, label), _legend(used), _stack_hover(frame, xs, used, y_format))


def _band(frame: Frame, line: Line) -> list[str]:
    if len(line.band) < 2:
        return [
            f'<rect class="band" x="{frame.x(x) - 3:.1f}" y="{frame.y(high):.1f}" width="6" '
            f'height="{frame.y(low) - frame.y(high):.1f}" style="fill:{line.color}"/>'
            for x, low, high in line.band
        ]
    upper = [f"{frame.x(x):.1f},{frame.y(high):.1f}" for x, _, high in line.band]
    lower = [f"{frame.x(x):.1f},{frame.y(low):.1f}" for x, low, _ in reversed(line.band)]
    return [f'<polygon class="band" points="{" ".join(upper + lower)}" style="fill:{line.color}"/>']


def _strokes(frame: Frame, line: Line) -> list[str]:
    """The line's unbroken runs; a run of one point is a dot."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in line.points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append((frame.x(x), frame.y(y)))
    parts: list[str] = []
    kind = "stroke faint" if line.faint else "stroke"
    for run in filter(None, runs):
        if len(run) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
            parts.append(f'<polyline class="{kind}" points="{path}" style="stroke:{line.color}"/>')
        if len(run) == 1 or line.dots:
            parts.extend(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill:{line.color}"/>' for x, y in run
            )
    return parts


def _legend(layers: Sequence[Layer]) -> list[tuple[str, str]]:
    return [(layer.label, layer.color) for layer in layers]


def _stack_hover(
    frame: Frame, xs: Sequence[float], layers: Sequence[Layer], y_format: Format
) -> dict[str, Any]:
    return _hover(
        frame,
        [
            {
                "label": layer.label,
                "color": layer.color,
                "points": [[x, y_format(v)] for x, v in zip(xs, layer.values, strict=True) if v],
            }
            for layer in reversed(layers)
        ],
    )


def _hover(frame: Frame, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "left": frame.left,
        "right": frame.width - frame.right,
        "low": frame.x_low,
        "high": frame.x_high,
        "series": series,
    }

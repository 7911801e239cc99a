"""Draws the pictures of benchmark pages from the tables of the pages.

    python -m benchmarks.pictures            # draws all of them again
    python -m benchmarks.pictures --check    # fails if one differs from its table

Each picture is a bar chart of columns of one table: ``benchmarks/NAME.svg``. The tables come from the output
of the benchmarks, so a page and its picture cannot differ.
"""

from __future__ import annotations

import argparse
import re
from html import escape
from pathlib import Path

from msgspec import Struct

FOLDER = Path(__file__).parent
_LABELS, _BARS, _VALUES = 430, 300, 60
_ROW, _TOP = 20, 40
_COLORS = ("#2f6fb2", "#c2703d", "#5b8c5a")


class BarChart(Struct, frozen=True):
    """A chart of a page's table.

    page: without ``.md``. heading: the line after which the table is the first one. columns: titles of the
    columns with values. labels: numbers of the columns that name a row. leave_out: rows whose name matches.
    """

    page: str
    title: str
    heading: str
    columns: list[str]
    labels: tuple[int, ...] = (0,)
    leave_out: str = ""
    name: str = ""

    @property
    def file(self) -> Path:
        """The file of the picture."""
        return FOLDER / f"{self.name or self.page}.svg"


CHARTS = (
    BarChart(
        "judge_speed",
        "CPU milliseconds of a case, small programs with 10 cases",
        "### Small programs, 10 cases each",
        ["CPU ms per case"],
        leave_out="floor",
    ),
    BarChart(
        "quickstart",
        "Held-out pass@1 of the quickstart, by seed",
        "## `make quickstart`",
        ["held-out pass@1 before", "after"],
    ),
    BarChart(
        "async",
        "Share of generated tokens that is wasted, by composition rule (%)",
        "`python benchmarks/async.py real`",
        ["wasted"],
    ),
    BarChart(
        "weights",
        "Bytes of a version, relative to index + value, by learning rate and step",
        "## Bytes and CPU",
        ["of index + value", "XOR, zstd-1"],
        labels=(0, 1),
    ),
    BarChart("trl_step", "Seconds per GRPO step", "each in a", ["median"]),
    BarChart(
        "generation", "CPU seconds of generation, by batch", "# ", ["Hugging Face, CPU s", "Whetstone, CPU s"]
    ),
)


def main() -> None:
    """Draw or check all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a picture differs")
    check = parser.parse_args().check
    for chart in CHARTS:
        text = draw(chart)
        if check and (not chart.file.exists() or chart.file.read_text(encoding="utf-8") != text):
            raise SystemExit(f"{chart.file.name} differs from its table; run python -m benchmarks.pictures")
        if not check:
            chart.file.write_text(text, encoding="utf-8")


def draw(chart: BarChart) -> str:
    """Return the picture of a chart as SVG. Raises ValueError if the page has no such table."""
    titles, rows = table_of((FOLDER / f"{chart.page}.md").read_text(encoding="utf-8"), chart.heading)
    if missing := [title for title in chart.columns if title not in titles]:
        raise ValueError(f"{chart.page}.md: the table has no column {', '.join(missing)}")
    at = [titles.index(title) for title in chart.columns]
    bars = [
        (_name(titles, row, chart.labels), [number_of(row[column]) for column in at])
        for row in rows
        if not chart.leave_out or chart.leave_out not in row[0]
    ]
    most = max(value for _, values in bars for value in values)
    several = len(chart.columns) > 1
    height = _TOP + _ROW * len(chart.columns) * len(bars) + 8 * len(bars) + (24 if several else 4)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LABELS + _BARS + _VALUES} {height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<style>text{fill:#222}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>",
        f'<text x="8" y="18" font-weight="600">{escape(chart.title)}</text>',
    ]
    y = _TOP
    for label, values in bars:
        own = ' font-weight="600"' if "Whetstone" in label else ""
        parts.append(f'<text x="{_LABELS - 8}" y="{y + 14}" text-anchor="end"{own}>{escape(label)}</text>')
        for value, color in zip(values, _COLORS, strict=False):
            width = max(1.0, _BARS * value / most) if most else 1.0
            parts.append(f'<rect x="{_LABELS}" y="{y + 2}" width="{width:.1f}" height="16" fill="{color}"/>')
            parts.append(f'<text x="{_LABELS + width + 6:.1f}" y="{y + 14}">{value:g}</text>')
            y += _ROW
        y += 8
    x = _LABELS
    for title, color in zip(chart.columns if several else [], _COLORS, strict=False):
        parts.append(f'<rect x="{x}" y="{y + 4}" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 14}">{escape(title)}</text>')
        x += 30 + 7 * len(title)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _name(titles: list[str], row: list[str], labels: tuple[int, ...]) -> str:
    """Return the name of a row: its cells, and the titles of cells that are numbers."""
    cells = [f"{titles[at]} {row[at]}" if row[at][:1].isdigit() else row[at] for at in labels]
    return ", ".join(cells)


def table_of(page: str, heading: str) -> tuple[list[str], list[list[str]]]:
    """Return the titles and the rows of the first table after a text. Raises ValueError if there is none."""
    _, found, rest = page.partition(heading)
    lines = rest.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith("|")), None)
    if (heading and not found) or start is None:
        raise ValueError(f"there is no table after {heading!r}")
    rows: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([re.sub(r"\*\*|`", "", cell).strip() for cell in line.strip().strip("|").split("|")])
    return rows[0], rows[2:]


def number_of(cell: str) -> float:
    """Return the first number of a cell: ``49,276``, ``.182`` or ``23.8%``. Raises ValueError without one."""
    found = re.search(r"-?\d[\d,]*\.?\d*|-?\.\d+", cell)
    if found is None:
        raise ValueError(f"no number in {cell!r}")
    return float(found[0].replace(",", ""))


if __name__ == "__main__":
    main()

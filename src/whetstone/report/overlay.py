"""Curves of several runs over one another: one chart for each number, one colour for each run."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from whetstone.report.charts import Chart, Line, line_chart
from whetstone.report.metrics import Record
from whetstone.report.panels import FIRST, MAX_POINTS, SET_LABELS, TITLES, legend_of
from whetstone.report.run_data import RunData, eval_sets
from whetstone.report.scales import Format, Points, short, smoothed, thin, whole_percent

COLORS = (
    *("var(--steel)", "var(--spark)", "var(--moss)", "var(--plum)"),
    *("var(--v-output_limit)", "var(--v-wrong_answer)", "var(--v-compile_error)", "var(--stone)"),
)
MOST_RUNS = len(COLORS)
_SHARES = ("reward/pass_rate", "length/truncated", "length/repetition")
_OTHERS = (*_SHARES, "length/mean", "length/max", "sample/unscored", "group/zero_variance")
_NAMES = {
    "reward/pass_rate": "accepted share",
    "length/truncated": "cut at the token limit",
    "length/repetition": "repeated spans of 20 tokens",
    "length/mean": "reply length, in tokens",
    "length/max": "longest reply, in tokens",
    "sample/unscored": "replies without reward",
    "group/zero_variance": "groups without spread",
}


def overlay(runs: Sequence[tuple[str, RunData]]) -> tuple[str, dict[str, Any]]:
    """The curves of at most ``MOST_RUNS`` named runs as HTML, and what the charts' tooltips show.

    A number that a run does not have is left out of its chart. Rewards are smoothed over a twelfth of a run.
    """
    charts = [_chart("reward/mean", "mean reward", runs, smooth=True)]
    for name in sorted({name for _, run in runs for name in eval_sets(run.evals)}):
        label = f"pass@1, {SET_LABELS.get(name, name)}"
        charts.append(_chart(f"eval/{name}/pass@1", label, runs, y_format=whole_percent, evals=True))
    wide = [_figure(title, chart) for title, chart in charts if chart]
    small = [
        _chart(key, _NAMES.get(key, TITLES.get(key, key)), runs, small=True, smooth=key in _SHARES)
        for key in (*_OTHERS, *FIRST)
    ]
    cells = [_figure(title, chart) for title, chart in small if chart]
    drawn = [chart for _, chart in (*charts, *small) if chart]
    if not drawn:
        return '<section class="panel wide"><p class="empty">no data</p></section>', {}
    legend = legend_of([(name, COLORS[i]) for i, (name, _) in enumerate(runs)])
    head = f'<section class="panel wide"><h2>Runs</h2>{legend}'
    body = (
        f'<div class="overlaid">{"".join(wide)}</div><div class="multiples">{"".join(cells)}</div></section>'
    )
    return head + body, {chart.identity: chart.hover for chart in drawn}


def _chart(
    key: str,
    title: str,
    runs: Sequence[tuple[str, RunData]],
    *,
    small: bool = False,
    smooth: bool = False,
    evals: bool = False,
    y_format: Format = short,
) -> tuple[str, Chart | None]:
    lines = [
        Line(name, COLORS[i], _points(run, run.evals if evals else run.train, key, smooth), dots=evals)
        for i, (name, run) in enumerate(runs)
    ]
    known = [line for line in lines if any(y is not None for _, y in line.points)]
    return title, line_chart(
        key, f"{title} over steps", known, small=small, y_format=y_format
    ) if known else None


def _points(run: RunData, records: Sequence[Record], key: str, smooth: bool) -> Points:
    points, _ = thin(run.series(records, key), MAX_POINTS)
    return smoothed(points, max(1, len(points) // 12)) if smooth else points


def _figure(title: str, chart: Chart) -> str:
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{chart.svg}</figure>"

"""The panels of a run's page: which metrics each draws, and what it says without them."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from whetstone.report.audit import audit_rows
from whetstone.report.charts import Chart, Layer, Line, area_chart, bar_chart, line_chart
from whetstone.report.metrics import Record
from whetstone.report.run_data import RunData, eval_sets
from whetstone.report.scales import Points, percent, short, smoothed, thin, whole_percent
from whetstone.verdict import Verdict

MAX_POINTS = 400
MAX_COLUMNS = 80
MAX_BANDS = 48
PHASES = ["generate", "train", "sync"]
SET_LABELS = {"heldout": "held-out", "train": "training"}
SET_COLORS = {"heldout": "var(--spark)", "train": "var(--steel)"}
PHASE_COLORS = ["var(--steel)", "var(--spark)", "var(--moss)", "var(--plum)", "var(--stone)"]
_OVERLAPPING = {"at", "step", "judge", "tokens_per_s", "train_tokens_per_s", "peak_bytes", "eval"}
_SHARES = {
    "replicas_busy": "replicas with prompts in hand",
    "trainer_busy": "trainer with a batch in hand",
    "overlap": "both at once",
}
"""Of the time of a step, where the roles of a run are processes of their own."""
_SOURCE = "reward/source/"
_DRAWN = ("reward/", "verdict/", "length/", "sample/unscored", "group/zero_variance")
FIRST = [
    "loss/loss",
    "loss/kl",
    "loss/step_kl",
    "loss/entropy",
    "loss/grad_norm",
    "loss/clip_fraction",
    "loss/ratio_mean",
    "loss/ratio_p01",
    "loss/ratio_p99",
    "loss/ratio_max",
    "loss/engine_kl",
    "loss/logprob_gap",
    "loss/logprob_gap_max",
    "loss/engine_gap",
    "staleness/mean",
    "staleness/max",
    "loss/importance",
    "loss/importance_truncated",
    "loss/importance_masked",
    "loss/lr",
]
TITLES = {
    "loss/loss": "loss",
    "loss/kl": "KL to the start (nats)",
    "loss/step_kl": "KL to the step's start (nats)",
    "loss/engine_kl": "KL, engine to trainer (nats)",
    "loss/entropy": "entropy (nats)",
    "loss/grad_norm": "gradient norm",
    "loss/logprob_gap": "log-prob gap, mean",
    "loss/logprob_gap_max": "log-prob gap, max",
    "loss/engine_gap": "log-prob gap, same weights",
    "loss/clip_fraction": "clipped share",
    "loss/ratio_max": "largest ratio",
    "loss/ratio_min": "smallest ratio",
    "loss/ratio_mean": "mean ratio",
    "loss/ratio_p01": "ratio, 1 in 100 below",
    "loss/ratio_p99": "ratio, 1 in 100 above",
    "loss/importance": "p_old / p_engine, mean",
    "loss/importance_truncated": "p_old / p_engine, share truncated",
    "loss/importance_masked": "p_old / p_engine, share masked",
    "loss/reasoning": "share of reasoning tokens",
    "loss/lr": "learning rate",
    "loss/tokens": "tokens trained",
    "loss/replies": "replies trained",
    "loss/updates": "updates",
    "loss/skipped": "updates skipped",
    "staleness/mean": "versions behind the weights, mean",
    "staleness/max": "versions behind the weights, most",
    "group/trained": "groups trained",
    "group/sampled": "groups sampled",
}


class Panels:
    """Draws a run's panels and collects what their tooltips show."""

    def __init__(self, run: RunData) -> None:
        self.run = run
        self.hover: dict[str, Any] = {}

    def all(self) -> str:
        """Every panel of curves, in reading order."""
        return "".join(
            [
                self._reward(),
                self._pass_rate(),
                self._verdicts(),
                self._lengths(),
                self._time(),
                self._audit(),
                self._optimisation(),
            ]
        )

    def of_partner(self, name: str) -> str:
        """The curves of a second model of the run, which is not evaluated and writes no programs."""
        whole = "".join([self._reward(), self._lengths(), self._audit(), self._optimisation()])
        self.hover = {f"{name}/{chart}": values for chart, values in self.hover.items()}
        title = html.escape(name.capitalize())
        note = "The second model of the run: its curves, by training step."
        head = f'<section class="panel wide"><h2>{title}</h2><p class="note">{note}</p></section>'
        return head + whole.replace('data-chart="', f'data-chart="{html.escape(name)}/')

    def _reward(self) -> str:
        raw = self.run.series(self.run.train, "reward/mean")
        points, width = thin(raw, MAX_POINTS)
        lines = [Line("each step", "var(--stone)", points, faint=True)]
        window = max(1, len(points) // 12)
        if window > 1:
            lines.append(Line(f"mean of {window * width} steps", "var(--steel)", smoothed(points, window)))
        else:
            lines = [Line("mean reward", "var(--steel)", points, dots=len(points) < 20)]
        passed, _ = thin(self.run.series(self.run.train, "reward/pass_rate"), MAX_POINTS)
        if passed != points:
            lines.append(Line("accepted share", "var(--spark)", smoothed(passed, window)))
        drawn = [y for line in lines for _, y in line.points if y is not None]
        shares = bool(drawn) and min(drawn) >= 0 and max(drawn) <= 1
        span = _share_range(lines) if shares else None
        chart = line_chart("reward", "mean reward over steps", lines, y_range=span)
        note = "Mean over the replies that have one, by training step."
        return self._panel("Reward", note, chart, [self._sources(window)])

    def _sources(self, window: int) -> Chart | None:
        """The reward by source of the problems, where there are several."""
        keys = sorted({key for record in self.run.train for key in record if key.startswith(_SOURCE)})
        lines = [
            Line(
                key.removeprefix(_SOURCE),
                PHASE_COLORS[i % len(PHASE_COLORS)],
                smoothed(thin(self.run.series(self.run.train, key), MAX_POINTS)[0], window),
            )
            for i, key in enumerate(keys)
        ]
        return line_chart("sources", "mean reward by source", lines, small=True) if lines else None

    def _pass_rate(self) -> str:
        evals = self.run.evals
        lines = [_pass_line(self.run, evals, name) for name in eval_sets(evals)]
        chart = line_chart(
            "pass", "pass@1 over steps", lines, y_range=_share_range(lines), y_format=whole_percent
        )
        note = "Evaluations during the run; bands are 95% intervals over problems."
        return self._panel("pass@1", note, chart)

    def _verdicts(self) -> str:
        counts = {
            v: thin(self.run.series(self.run.train, f"verdict/{v.value}"), MAX_BANDS)[0] for v in Verdict
        }
        steps = [x for x, _ in counts[Verdict.ACCEPTED]]
        layers = [
            Layer(v.value.replace("_", " "), f"var(--v-{v.value})", [y or 0.0 for _, y in points])
            for v, points in counts.items()
            if len(points) == len(steps)
        ]
        chart = (
            area_chart("verdicts", "verdict mix over steps", steps, layers, whole_percent) if steps else None
        )
        small = [
            self._small("sample/unscored", "replies without reward", "var(--plum)"),
            self._small("sample/shared_interpreter", "of these, forgeable verdicts", "var(--plum)"),
            self._small("group/zero_variance", "groups without spread", "var(--stone)"),
        ]
        return self._panel(
            "Verdict mix", "Share of all sampled replies by what the judge said.", chart, small
        )

    def _lengths(self) -> str:
        mean, _ = thin(self.run.series(self.run.train, "length/mean"), MAX_POINTS)
        chart = line_chart("lengths", "mean reply length over steps", [Line("mean", "var(--steel)", mean)])
        small = [
            self._small("length/truncated", "cut at the token limit", "var(--spark)", share=True),
            self._small("length/max", "longest, in tokens", "var(--stone)"),
            self._small("length/repetition", "repeated spans of 20 tokens", "var(--plum)", share=True),
        ]
        return self._panel("Reply length", "Tokens of a reply, by training step.", chart, small)

    def _small(self, key: str, title: str, color: str, *, share: bool = False) -> Chart | None:
        points, _ = thin(self.run.series(self.run.train, key), MAX_POINTS)
        tops = [y for _, y in points if y is not None]
        if not share:
            return line_chart(key, title, [Line(title, color, points)], small=True)
        span = (0.0, max([*tops, 0.05]) * 1.1)
        return line_chart(
            key, title, [Line(title, color, points)], y_range=span, y_format=percent, small=True
        )

    def _time(self) -> str:
        rows = _column_means([r for r in self.run.train if isinstance(r.get("time"), dict)])
        known = dict.fromkeys(n for _, t in rows for n in t if n not in _OVERLAPPING | _SHARES.keys())
        names = [n for n in PHASES if n in known] + [n for n in known if n not in PHASES]
        layers = [
            Layer(name, PHASE_COLORS[min(i, 4)], [t.get(name, 0.0) for _, t in rows])
            for i, name in enumerate(names)
        ]
        rest = [max(0.0, t.get("step", 0.0) - sum(t.get(n, 0.0) for n in names)) for _, t in rows]
        if any(value > 0.02 * t.get("step", 0.0) for value, (_, t) in zip(rest, rows, strict=True)):
            layers.append(Layer("other", "var(--line)", rest))
        steps = [step for step, _ in rows]
        chart = bar_chart("time", "seconds per step by phase", steps, layers, short) if rows else None
        smaller = [
            self._small_time(rows, "tokens_per_s", "tokens generated per second"),
            self._small_time(rows, "train_tokens_per_s", "tokens trained per second"),
            self._small_time(rows, "peak_bytes", "peak memory, GB", scale=1e-9),
            self._small_time(rows, "judge", "judge, CPU seconds (while generating)"),
            self._roles(rows),
        ]
        return self._panel("Time", "Wall seconds of each step by phase.", chart, smaller, wide=True)

    def _roles(self, rows: Sequence[tuple[float, dict[str, float]]]) -> Chart | None:
        lines = [
            Line(title, PHASE_COLORS[i], [(step, t[name]) for step, t in rows if name in t])
            for i, (name, title) in enumerate(_SHARES.items())
        ]
        drawn = [line for line in lines if line.points]
        if not drawn:
            return None
        title = "shares of the time in which roles worked"
        return line_chart("roles", title, drawn, y_range=(0.0, 1.0), y_format=whole_percent, small=True)

    def _small_time(
        self, rows: Sequence[tuple[float, dict[str, float]]], name: str, title: str, *, scale: float = 1.0
    ) -> Chart | None:
        points: Points = [(step, t[name] * scale) for step, t in rows if name in t]
        return line_chart(f"time-{name}", title, [Line(title, "var(--moss)", points)], small=True, width=360)

    def _audit(self) -> str:
        """Of an asynchronous run alone."""
        kept = self.run.audit
        rows = [] if kept is None else list(audit_rows(kept.figures))
        if kept is None or not rows:
            return ""
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows
        )
        note = f"Whether trained groups are like those that were sampled, up to step {kept.step}."
        head = f'<h2>Audit of the dataflow</h2><p class="note">{note}</p>'
        return f'<section class="panel">{head}<table>{cells}</table></section>'

    def _optimisation(self) -> str:
        keys = dict.fromkeys(key for r in self.run.train for key in r if _is_curve(key))
        ordered = [k for k in FIRST if k in keys] + [k for k in keys if k not in FIRST]
        cells: list[str] = []
        for key in ordered:
            points, _ = thin(self.run.series(self.run.train, key), MAX_POINTS)
            title = TITLES.get(key, key.replace("dropped/", "groups dropped: ").replace("_", " "))
            chart = line_chart(key, title, [Line(title, "var(--steel)", points)], small=True)
            if chart:
                self.hover[key] = chart.hover
                cells.append(f"<figure><figcaption>{html.escape(title)}</figcaption>{chart.svg}</figure>")
        body = f'<div class="multiples">{"".join(cells)}</div>' if cells else _NO_DATA
        note = "Each at its own scale, by training step."
        return f'<section class="panel wide"><h2>Optimisation</h2><p class="note">{note}</p>{body}</section>'

    def _panel(
        self,
        title: str,
        note: str,
        main: Chart | None,
        small: Sequence[Chart | None] = (),
        *,
        wide: bool = False,
    ) -> str:
        """A panel with a main chart and small ones; "no data" when the main one is missing."""
        body = _NO_DATA
        if main is not None:
            drawn = [chart for chart in small if chart]
            figures = "".join(_figure(chart) for chart in drawn)
            body = f"<div>{_legend(main)}{main.svg}</div>"
            body += f'<div class="below">{figures}</div>' if figures else ""
            self.hover.update({chart.identity: chart.hover for chart in [main, *drawn]})
        head = f'<h2>{html.escape(title)}</h2><p class="note">{html.escape(note)}</p>'
        kind = "panel wide" if wide else "panel"
        return f'<section class="{kind}">{head}<div class="charts">{body}</div></section>'


_NO_DATA = '<p class="empty">no data</p>'


def _pass_line(run: RunData, evals: Sequence[Record], name: str) -> Line:
    key = f"eval/{name}/pass@1"
    band = [
        (float(r["step"]), float(r[f"{key}_low"]), float(r[f"{key}_high"]))
        for r in evals
        if f"{key}_low" in r and f"{key}_high" in r
    ]
    color = SET_COLORS.get(name, "var(--moss)")
    return Line(SET_LABELS.get(name, name), color, run.series(evals, key), band=band, dots=True)


def _share_range(lines: Sequence[Line]) -> tuple[float, float]:
    """From 0 to the next fifth above everything drawn, at most 1: shares keep a fixed floor."""
    tops = [y for line in lines for _, y in line.points if y is not None]
    tops += [high for line in lines for _, _, high in line.band]
    top = max(tops, default=1.0)
    return 0.0, min(1.0, (int(top * 5 - 1e-9) + 1) / 5)


def _column_means(records: Sequence[Record]) -> list[tuple[float, dict[str, float]]]:
    """Times by column: one for each step, or means over neighbours when there are too many."""
    width = -(-len(records) // MAX_COLUMNS) or 1
    rows: list[tuple[float, dict[str, float]]] = []
    for start in range(0, len(records), width):
        run = records[start : start + width]
        names = dict.fromkeys(n for r in run for n, v in r["time"].items() if isinstance(v, int | float))
        means = {n: sum(r["time"].get(n, 0.0) for r in run) / len(run) for n in names}
        rows.append((float(run[-1]["step"]), means))
    return rows


def _is_curve(key: str) -> bool:
    return "/" in key and not key.startswith(_DRAWN)


def _legend(chart: Chart) -> str:
    return "" if len(chart.legend) < 2 else legend_of(chart.legend)


def legend_of(entries: Sequence[tuple[str, str]]) -> str:
    """Labels with their colours, as HTML."""
    items = [f'<li><i style="background:{color}"></i>{html.escape(label)}</li>' for label, color in entries]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _figure(chart: Chart) -> str:
    title = _legend(chart) or html.escape(chart.legend[0][0] if chart.legend else "")
    return f"<figure><figcaption>{title}</figcaption>{chart.svg}</figure>"

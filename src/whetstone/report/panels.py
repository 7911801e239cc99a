"""The panels of a run's page: the metrics of each, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whetstone.core.verdict import Verdict
from whetstone.evaluate.results import PASS_1, REWARD
from whetstone.report.audit import audit_rows
from whetstone.report.charts import Chart, Columns, Panel, Series, chart_of, share_top, smooth
from whetstone.report.ledger import LEDGER, latest_tokens, ledger_rows
from whetstone.report.pace import LATEST, measured_flow
from whetstone.report.run_data import SET_LABELS, RunData, eval_sets
from whetstone.report.run_signs import KEY, WINDOW, sign_rows

MAX_COLUMNS = 80
SET_COLORS = {"heldout": "spark", "train": "steel"}
COLORS = ("steel", "spark", "moss", "plum", "stone")
# The order of these phases in charts. Other phases follow.
_PHASES = ("generate", "train", "sync")
# Entries of `time` that are not the duration of a phase.
_NOT_PHASES = {"at", "step", "judge", "tokens_per_s", "train_tokens_per_s", "peak_bytes", "eval", "token_s"}
# Shares of the time of a step in an asynchronous run.
_SHARES = {
    "replicas_busy": "replicas with prompts",
    "trainer_busy": "trainer with a batch",
    "overlap": "both at once",
}
_SOURCE = "reward/source/"
_DRAWN = ("reward/", "verdict/", "length/", "episode/turns", "sample/", "group/zero_variance", "time/", KEY)
# Small charts: the title and the colour of each metric.
SMALL = {
    "sample/unscored": ("replies without reward", "plum"),
    "sample/shared_interpreter": ("of these, forgeable verdicts", "plum"),
    "group/zero_variance": ("groups without spread", "stone"),
    "length/truncated": ("share cut at the token limit", "spark"),
    "length/max": ("longest reply, tokens", "stone"),
    "length/repetition": ("share of repeated 20-token spans", "plum"),
    "episode/turns": ("turns of an episode, mean", "moss"),
    "time/tokens_per_s": ("tokens generated per second", "moss"),
    "time/train_tokens_per_s": ("tokens trained per second", "moss"),
    "time/peak_bytes": ("peak memory, GB", "moss"),
    "time/judge": ("judge, CPU seconds", "moss"),
}
PERCENT = {"length/truncated", "length/repetition", "reward/pass_rate", "loss/outside"}
# The number that one unit of a chart has of the unit of its metric.
_UNITS = {"time/peak_bytes": 1e9}
# The titles of the metrics of the optimisation, in the order of their charts. Other metrics follow.
TITLES = {
    "loss/loss": "loss",
    "loss/kl": "KL to the start (nats)",
    "loss/step_kl": "KL to the step's start (nats)",
    "loss/entropy": "entropy (nats)",
    "loss/grad_norm": "gradient norm",
    "loss/clip_fraction": "clipped share",
    "loss/ratio_mean": "mean ratio",
    "loss/ratio_p01": "ratio, 1 in 100 below",
    "loss/ratio_p99": "ratio, 1 in 100 above",
    "loss/ratio_max": "largest ratio",
    "loss/engine_kl": "KL, engine to trainer (nats)",
    "loss/logprob_gap": "log-prob gap, mean",
    "loss/logprob_gap_max": "log-prob gap, max",
    "loss/engine_gap": "log-prob gap, same weights",
    "loss/outside": "p_engine / p outside [0.9, 1.1], share",
    "staleness/mean": "versions behind the weights, mean",
    "staleness/max": "versions behind the weights, most",
    "staleness/token_age": "versions behind the weights, tokens",
    "staleness/wasted": "share of tokens wasted",
    "staleness/length_shift": "lengths: trained against sampled",
    "loss/importance": "p_old / p_engine, mean",
    "loss/importance_truncated": "p_old / p_engine, share truncated",
    "loss/importance_masked": "p_old / p_engine, share masked",
    "loss/lr": "learning rate",
}
_OTHER_TITLES = {
    "loss/ratio_min": "smallest ratio",
    "loss/reasoning": "share of reasoning tokens",
    "loss/tokens": "tokens trained",
    "loss/replies": "replies trained",
    "loss/updates": "updates",
    "loss/skipped": "updates skipped",
    "group/trained": "groups trained",
    "group/sampled": "groups sampled",
}


def run_panels(run: RunData) -> list[Panel]:
    """Return every panel of a run, in reading order."""
    records = flat_records(run.train)
    panels = [_reward(records), _evaluated(run), _verdicts(records), _lengths(records), _time(records)]
    return [*_signs(run), *panels, *_ledger(run), *_audit(run), *_pace(run), _optimisation(records)]


def partner_panels(run: RunData) -> list[Panel]:
    """Return the panels of a second model, which is not evaluated and writes no programs."""
    records = flat_records(run.train)
    return [
        *_signs(run),
        _reward(records),
        _lengths(records),
        *_ledger(run),
        *_audit(run),
        _optimisation(records),
    ]


def flat_records(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the records, with the numbers under ``time`` as ``time/NAME``."""
    return [
        {**record, **{f"time/{name}": value for name, value in clock.items()}}
        if isinstance(clock := record.get("time"), dict)
        else dict(record)
        for record in records
    ]


def _signs(run: RunData) -> list[Panel]:
    """Return what the terminal warned of during the run."""
    note = f"Each is about {WINDOW} steps together. The terminal has shown them too."
    rows = sign_rows(run.train)
    return [Panel("Warnings", note, rows=rows, wide=True)] if rows else []


def _reward(records: Sequence[Mapping[str, Any]]) -> Panel:
    columns = Columns(records, ["reward/mean", "reward/pass_rate"])
    mean, passed = columns.values["reward/mean"], columns.values["reward/pass_rate"]
    window = max(1, len(mean) // 12)
    series = [Series("mean reward", "steel", mean)]
    if window > 1:
        label = f"mean of {window * columns.width} steps"
        series = [
            Series("each step", "stone", mean, faint=True),
            Series(label, "steel", smooth(mean, window)),
        ]
    if passed != mean:
        series.append(Series("accepted share", "spark", smooth(passed, window)))
    known = [value for each in series for value in each.values if value is not None]
    # Only rewards in [0, 1] get an axis that starts at 0. Others may be negative or large.
    shares = bool(known) and min(known) >= 0 and max(known) <= 1
    top = share_top(series) if shares else None
    main = chart_of("reward", "mean reward", columns.steps, series, unit="reward", top=top)
    note = "Mean over the replies that have a reward."
    return Panel("Reward", note, _charts(main, _sources(records, window)))


def _sources(records: Sequence[Mapping[str, Any]], window: int) -> Chart | None:
    """Return the reward by source of the problems, if there are several."""
    keys = sorted({key for record in records for key in record if key.startswith(_SOURCE)})
    columns = Columns(records, keys)
    series = [
        Series(key.removeprefix(_SOURCE), COLORS[i % len(COLORS)], smooth(columns.values[key], window))
        for i, key in enumerate(keys)
    ]
    return chart_of("sources", "mean reward by source", columns.steps, series)


def _evaluated(run: RunData) -> Panel:
    """Return the panel of pass@1, of rewards that are not the same number, and of turns."""
    passed, rewards = (_estimates(run, name) for name in (PASS_1, REWARD))
    turns = [f"eval/{name}/turns" for name in eval_sets(run.evals)]
    charts = [chart for chart in (passed, rewards, *_small(run.evals, turns)) if chart]
    note = "Evaluations during the run. Bands are 95% intervals over problems."
    return Panel("Reward of evaluations" if rewards and not passed else PASS_1, note, charts)


def _estimates(run: RunData, estimate: str) -> Chart | None:
    """Return an estimate of the evaluations, with a line for each problem set that has it."""
    keys = {name: f"eval/{name}/{estimate}" for name in eval_sets(run.evals)}
    columns = Columns(run.evals, [f"{key}{end}" for key in keys.values() for end in ("", "_low", "_high")])
    value = columns.values
    series = [
        Series(
            *(SET_LABELS.get(name, name), SET_COLORS.get(name, "moss"), value[key]),
            *(value[f"{key}_low"], value[f"{key}_high"]),
        )
        for name, key in keys.items()
    ]
    # The axis ends where the run does, as those of the other charts.
    end = float(run.train[-1]["step"]) if run.train else None
    options: dict[str, Any] = {"unit": estimate, "end": end}
    if estimate == REWARD:
        return chart_of("evaluated", "mean reward of evaluations", columns.steps, series, **options)
    top = share_top(series)
    return chart_of("pass", estimate, columns.steps, series, percent=True, top=top, **options)


def _verdicts(records: Sequence[Mapping[str, Any]]) -> Panel:
    keys = {verdict: f"verdict/{verdict.value}" for verdict in Verdict}
    columns = Columns(records, list(keys.values()), MAX_COLUMNS)
    # A step without replies has no shares, and must not divide by zero.
    totals = [sum(value or 0.0 for value in row) or 1.0 for row in zip(*columns.values.values(), strict=True)]
    layers = [
        Series(
            verdict.value.replace("_", " "),
            f"v-{verdict.value}",
            [(value or 0.0) / total for value, total in zip(columns.values[key], totals, strict=True)],
        )
        for verdict, key in keys.items()
    ]
    main = _stack("verdicts", "verdicts", columns, layers, unit="share of replies", percent=True, top=1.0)
    small = _small(records, ("sample/unscored", "sample/shared_interpreter", "group/zero_variance"))
    if main is None and records:
        note = "Replies without a reward, and groups whose rewards are all equal. No reply has a verdict."
        return Panel("Learning signal", note, [chart for chart in small if chart], multiples=True)
    return Panel("Verdicts", "Share of the judged replies by verdict.", _charts(main, *small))


def _lengths(records: Sequence[Mapping[str, Any]]) -> Panel:
    columns = Columns(records, ["length/mean"])
    main = chart_of(
        *(
            "lengths",
            "mean reply length",
            columns.steps,
            [Series("mean", "steel", columns.values["length/mean"])],
        ),
        unit="tokens",
    )
    small = _small(records, ("length/truncated", "length/max", "length/repetition", "episode/turns"))
    return Panel("Reply length", "Tokens of a reply.", _charts(main, *small))


def _time(records: Sequence[Mapping[str, Any]]) -> Panel:
    known = dict.fromkeys(key.removeprefix("time/") for r in records for key in r if key.startswith("time/"))
    others = _NOT_PHASES | _SHARES.keys()
    names = [name for name in known if name not in others and not name.startswith(LEDGER)]
    names.sort(key=lambda name: _PHASES.index(name) if name in _PHASES else len(_PHASES))
    columns = Columns(records, [f"time/{name}" for name in (*names, "step")], MAX_COLUMNS)
    times = {name: [value or 0.0 for value in columns.values[f"time/{name}"]] for name in (*names, "step")}
    layers = [Series(name, COLORS[min(i, 4)], [*times[name]]) for i, name in enumerate(names)]
    rows = zip(times["step"], *(times[name] for name in names), strict=True)
    # The time that no phase accounts for. Below 2 % it gets no layer.
    rest = [max(0.0, step - sum(phases)) for step, *phases in rows]
    if any(value > 0.02 * step for value, step in zip(rest, times["step"], strict=True)):
        layers.append(Series("other", "line", [*rest]))
    main = _stack("time", "seconds of a step by phase", columns, layers, unit="seconds")
    small = ("time/tokens_per_s", "time/train_tokens_per_s", "time/peak_bytes", "time/judge")
    charts = _charts(main, *_small(records, small), _roles(records))
    return Panel("Time", "Wall seconds of each step by phase.", charts, wide=True)


def _roles(records: Sequence[Mapping[str, Any]]) -> Chart | None:
    columns = Columns(records, [f"time/{name}" for name in _SHARES])
    series = [
        Series(title, COLORS[i], columns.values[f"time/{name}"])
        for i, (name, title) in enumerate(_SHARES.items())
    ]
    return chart_of(
        "roles", "share of the time in which roles worked", columns.steps, series, percent=True, top=1.0
    )


def _ledger(run: RunData) -> list[Panel]:
    """Return the account of all generated tokens."""
    rows = list(ledger_rows(latest_tokens(run.train)))
    note = f"What became of every generated token, up to step {run.train[-1]['step']}." if rows else ""
    # The audit is the next panel.
    return [Panel("Token ledger", note, rows=rows, wide=not _audit(run))] if rows else []


def _audit(run: RunData) -> list[Panel]:
    """Return the audit of an asynchronous run."""
    rows = [] if run.audit is None else list(audit_rows(run.audit.figures))
    if run.audit is None or not rows:
        return []
    note = f"Compares the groups that were trained with those that were sampled, up to step {run.audit.step}."
    return [Panel("Audit of the dataflow", note, rows=rows)]


def _pace(run: RunData) -> list[Panel]:
    """Return whether the replies of an asynchronous run outlast its staleness, and what would help."""
    found = measured_flow(run.folder, run.recipe, run.train)
    rows = [] if found is None else list(found.advice())
    note = f"The latest {LATEST} steps at most. The bound is that of training or generation alone."
    return [Panel("Staleness and throughput", note, rows=rows)] if rows else []


def _optimisation(records: Sequence[Mapping[str, Any]]) -> Panel:
    keys = dict.fromkeys(
        key for record in records for key in record if "/" in key and not key.startswith(_DRAWN)
    )
    ordered = [key for key in TITLES if key in keys] + [key for key in keys if key not in TITLES]
    constant = {key: value for key in ordered if (value := _constant(records, key)) is not None}
    charts = [chart for chart in _small(records, [key for key in ordered if key not in constant]) if chart]
    note = "Each metric has its own scale."
    if constant:
        listed = ", ".join(f"{_title(key)} {value:g}" for key, value in constant.items())
        note += f" The same in every step, and not drawn: {listed}."
    return Panel("Optimisation", note, charts, wide=True, multiples=True)


def _constant(records: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the value of a metric that is the same in several records, such as the ratios of one update."""
    values = [record[key] for record in records if isinstance(record.get(key), int | float)]
    return values[0] if len(values) > 1 and len({*values}) == 1 else None


def _small(records: Sequence[Mapping[str, Any]], keys: Iterable[str]) -> list[Chart | None]:
    """Return a small chart for each metric that has values."""
    charts: list[Chart | None] = []
    for key in keys:
        title, color = SMALL.get(key) or (_title(key), "steel")
        columns = Columns(records, [key])
        values = [value and value / _UNITS.get(key, 1) for value in columns.values[key]]
        charts.append(
            chart_of(key, title, columns.steps, [Series(title, color, values)], percent=key in PERCENT)
        )
    return charts


def _stack(id: str, title: str, columns: Columns, layers: Sequence[Series], **options: Any) -> Chart | None:
    """Return a stacked chart of the layers that are not zero everywhere."""
    used = [layer for layer in layers if any(layer.values)]
    return chart_of(id, title, columns.steps, used, stacked=True, **options)


def _title(key: str) -> str:
    readable = key.replace("dropped/", "groups dropped: ").replace("_", " ")
    return TITLES.get(key) or _OTHER_TITLES.get(key, readable)


def _charts(main: Chart | None, *small: Chart | None) -> list[Chart]:
    """Return the charts of a panel; none without the main chart."""
    return [chart for chart in (main, *small) if chart] if main else []

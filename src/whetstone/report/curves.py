"""The data of the page of several runs: their curves, and their results side by side, with the paired
difference of each to the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file
from whetstone.evaluate.manifest import differences, flat_settings
from whetstone.evaluate.passk import PairedDifference
from whetstone.evaluate.results import EVALUATION_FILE, PASS_1, REWARD, Evaluation, paired_differences
from whetstone.report.charts import Chart, Columns, Panel, Series, chart_of, clock_of, smooth
from whetstone.report.metrics import Record
from whetstone.report.page import html_page
from whetstone.report.panels import COLORS, PERCENT, SMALL, TITLES
from whetstone.report.run_data import (
    GENERATED,
    SET_LABELS,
    RunData,
    cached_evaluation,
    eval_estimates,
    eval_sets,
    read_run,
    result_of,
)

_COLORS = (*COLORS[:-1], "v-output_limit", "v-wrong_answer", "v-compile_error", "stone")
MOST_RUNS = len(_COLORS)
_METRICS = {
    "reward/pass_rate": "accepted share",
    "length/mean": "reply length, tokens",
    **{key: title for key, (title, _) in SMALL.items() if not key.startswith("time/")},
    **TITLES,
}
_SMOOTH_METRICS = {*PERCENT, "reward/mean"}
_TOKENS = "generated tokens"

NamedRuns = Sequence[tuple[str, RunData]]


def read_runs(folders: Sequence[str]) -> list[tuple[str, RunData]]:
    """Return the runs in these folders with their names on the page: those of the folders, or their paths if
    two folders have the same name.

    Raises UserError for too many runs, and for a folder that is no run.
    """
    if len(folders) > MOST_RUNS:
        raise UserError(f"{len(folders)} runs cannot be shown in one chart; give at most {MOST_RUNS}")
    short = [Path(folder).resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else folders
    return [(name, read_run(folder, max_rollouts=0)) for name, folder in zip(names, folders, strict=True)]


def write_curves_page(runs: NamedRuns, out: str | Path | None = None) -> Path:
    """Write the page of several runs to ``out`` (``comparison.html`` in the folder of the first run).

    Returns its path. Raises UserError if it cannot be written.
    """
    target = Path(out) if out else runs[0][1].folder / "comparison.html"
    title = ", ".join(name for name, _ in runs)
    data = {"page": curves_page(runs), "title": title, "rows": []}
    write_file(target, [html_page("curves", title, data).encode(errors="replace")])
    return target


def curves_page(runs: NamedRuns) -> dict[str, Any]:
    """Return the data of the page of at most ``MOST_RUNS`` named runs."""
    return {
        "title": "Curves",
        "panels": _panels(runs),
        "clocks": {name: clock_of(run.train) for name, run in runs},
        "comparison": run_comparison(runs),
    }


def _panels(runs: NamedRuns) -> list[Panel]:
    """Return the curves.

    Evaluations are over generated tokens if all runs recorded them, and everything else is over steps. A
    metric that a run does not have is left out of its chart. Rewards and shares are smoothed over a twelfth
    of a run.
    """
    trained = {name: run.train for name, run in runs}
    by_tokens = all(any(GENERATED in record for record in run.train) for _, run in runs)
    evaluated = {name: _over_tokens(run) if by_tokens else run.evals for name, run in runs}
    main = [_chart("reward/mean", "mean reward", trained)]
    for name in sorted({name for _, run in runs for name in eval_sets(run.evals)}):
        for estimate in (PASS_1, REWARD):
            title, key = f"{estimate}, {SET_LABELS.get(name, name)}", f"eval/{name}/{estimate}"
            axis = _TOKENS if by_tokens else ""
            main.append(_chart(key, title, evaluated, percent=estimate == PASS_1, axis=axis))
    drawn = [chart for chart in main if chart]
    small = [_chart(key, title, trained, percent=key in PERCENT) for key, title in _METRICS.items()]
    return [
        *(
            Panel(chart.title, "One line for each run.", [chart], wide=i == 0 and len(drawn) % 2 == 1)
            for i, chart in enumerate(drawn)
        ),
        Panel(
            "Metrics", "Each metric has its own scale.", [c for c in small if c], wide=True, multiples=True
        ),
    ]


def _over_tokens(run: RunData) -> list[Record]:
    """Return the evaluations of a run with the number of tokens generated so far as their ``step``."""
    steps = [record["step"] for record in run.train]
    tokens = dict(zip(steps, accumulate(record.get(GENERATED, 0) for record in run.train), strict=True))
    # An evaluation of a step without a record, such as step 0, is between its neighbours.
    return [
        {**record, "step": max((tokens[s] for s in steps if s <= record["step"]), default=0)}
        for record in run.evals
    ]


def _chart(
    key: str,
    title: str,
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    percent: bool = False,
    axis: str = "",
) -> Chart | None:
    """Return a metric of all runs, over the steps of all of them. ``axis``: what their steps are."""
    columns = {name: Columns(records, [key]) for name, records in runs.items()}
    # Runs may record different steps, and their series need a common axis.
    steps = sorted({step for column in columns.values() for step in column.steps})
    series: list[Series] = []
    for color, (name, column) in zip(_COLORS, columns.items(), strict=False):
        values = column.values[key]
        if key in _SMOOTH_METRICS:
            values = smooth(values, max(1, len(values) // 12))
        by_step = dict(zip(column.steps, values, strict=True))
        series.append(Series(name, color, [by_step.get(step) for step in steps]))
    return chart_of(key, title, steps, series, percent=percent, axis=axis)


def run_comparison(runs: NamedRuns) -> dict[str, Any]:
    """Return the results of named runs.

    ``runs``: for each its name, algorithm, seed, number of steps, and numbers of generated and of trained
    tokens; null where there is none. ``results``: for each problem set and estimate, for each run that has
    it, ``before``, ``after`` and ``change`` as in ``result_of``, and ``difference``: the paired difference
    between the last evaluation of the run and that of the first run; null for the first run. ``notes`` are
    differences in how the evaluations were made. ``settings``: for each setting of the recipes that is not
    the same in all runs, its ``key`` and its ``values`` in their order.
    """
    if not runs:
        return {"runs": [], "results": [], "settings": [], "notes": []}
    found = [(name, result_of(run)["evaluations"]) for name, run in runs]
    results: list[dict[str, Any]] = []
    notes: list[str] = []
    for set_name in sorted({each for _, run in runs for each in eval_sets(run.evals)}):
        compared = [_difference(runs[0][1], run, set_name) for _, run in runs]
        for (name, _), (_, unlike) in zip(runs, compared, strict=True):
            notes += [f"{name}, {set_name}, against {runs[0][0]}: {line}" for line in unlike]
        names = dict.fromkeys(one for _, run in runs for one in eval_estimates(run.evals, set_name))
        for estimate in names:
            rows = [
                {"run": name, **one, "difference": _bounds(pairs.get(estimate))}
                for (name, evaluations), (pairs, _) in zip(found, compared, strict=True)
                for one in evaluations
                if (one["set"], one["estimate"]) == (set_name, estimate)
            ]
            results.append({"set": set_name, "estimate": estimate, "rows": rows})
    return {
        "runs": [_facts(name, run) for name, run in runs],
        "results": results,
        "settings": _different_settings([run for _, run in runs]),
        "notes": notes,
    }


def _facts(name: str, run: RunData) -> dict[str, Any]:
    return {
        "name": name,
        "algorithm": run.section("algorithm").get("preset"),
        "seed": run.recipe.get("seed"),
        "steps": max((record["step"] for record in run.train), default=0),
        "generated": _total(run, GENERATED),
        "trained": _total(run, "loss/tokens"),
    }


def _different_settings(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    recipes = [flat_settings(run.recipe) for run in runs]
    # A difference of the name or of the place says nothing about a run.
    keys = dict.fromkeys(key for recipe in recipes for key in recipe if key not in ("name", "out"))
    rows = [{"key": key, "values": [recipe.get(key) for recipe in recipes]} for key in keys]
    return [row for row in rows if any(value != row["values"][0] for value in row["values"])]


def _total(run: RunData, key: str) -> int | None:
    known = [record[key] for record in run.train if key in record]
    return round(sum(known)) if known else None


def _difference(first: RunData, run: RunData, set_name: str) -> tuple[dict[str, PairedDifference], list[str]]:
    """Return the paired differences run - first of a problem set, and how their evaluations differ."""
    if run is first:
        return {}, []
    a, b = (_last_evaluation(each, set_name) for each in (first, run))
    if a is None or b is None:
        return {}, []
    pairs = paired_differences(a, b)
    unlike = differences(_sampling(a), _sampling(b))
    common = next(iter(pairs.values()), None)
    if common is not None and (common.only_a or common.only_b):
        unlike.append(f"{common.only_b} problems only here, {common.only_a} only there")
    return pairs, unlike


def _sampling(evaluation: Evaluation) -> dict[str, Any]:
    # Each run has its own seed, unless it repeats another one.
    return {"sampling": evaluation.plan.model_dump(mode="json", exclude={"seed"})}


def _last_evaluation(run: RunData, set_name: str) -> Evaluation | None:
    steps = [record["step"] for record in run.evals]
    folder: Path = run.folder / "evaluations" / f"step-{max(steps, default=0)}-{set_name}"
    return cached_evaluation(folder) if (folder / EVALUATION_FILE).is_file() else None


def _bounds(found: PairedDifference | None) -> dict[str, float] | None:
    return None if found is None else {"value": found.value, "low": found.low, "high": found.high}

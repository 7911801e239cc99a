"""The results of several runs side by side, with the paired difference of each to the first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whetstone.evaluate.manifest import differences
from whetstone.evaluate.passk import PairedDifference
from whetstone.evaluate.results import EVALUATION_FILE, Evaluation, paired_differences
from whetstone.report.run_data import (
    GENERATED,
    RunData,
    cached_evaluation,
    eval_estimates,
    eval_sets,
    result_of,
)


def run_comparison(runs: Sequence[tuple[str, RunData]]) -> dict[str, Any]:
    """Return the results of named runs.

    ``runs``: for each its name, algorithm, seed, number of steps, and numbers of generated and of trained
    tokens; null where there is none. ``results``: for each problem set and estimate, for each run that has
    it, ``before``, ``after`` and ``change`` as in ``result_of``, and ``difference``: the paired difference
    between the last evaluation of the run and that of the first run; null for the first run. ``notes`` are
    differences in how the evaluations were made.
    """
    if not runs:
        return {"runs": [], "results": [], "notes": []}
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
    return {"runs": [_facts(name, run) for name, run in runs], "results": results, "notes": notes}


def _facts(name: str, run: RunData) -> dict[str, Any]:
    return {
        "name": name,
        "algorithm": run.section("algorithm").get("preset"),
        "seed": run.recipe.get("seed"),
        "steps": max((record["step"] for record in run.train), default=0),
        "generated": _total(run, GENERATED),
        "trained": _total(run, "loss/tokens"),
    }


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

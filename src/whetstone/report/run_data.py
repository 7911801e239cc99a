"""The contents of a run's folder, as its page needs them, and its result. Missing parts are empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml

from whetstone.core.errors import UserError
from whetstone.core.yaml_text import parse_yaml
from whetstone.evaluate.passk import PairedDifference
from whetstone.evaluate.results import (
    EVALUATION_FILE,
    REWARD,
    Evaluation,
    load_evaluation,
    paired_differences,
)
from whetstone.evaluate.tables import with_interval
from whetstone.report.audit import KeptAudit, read_audit
from whetstone.report.growing_files import Stamp, file_stamp
from whetstone.report.metrics import Record, read_metrics
from whetstone.report.rollouts import RolloutRow, read_rollouts, rollout_steps, with_groups

GENERATED = "length/total"
"""The key of the number of tokens that were generated for a step, dropped groups included."""

SET_LABELS = {"heldout": "held-out", "train": "training"}


@dataclass(frozen=True)
class RunData:
    """A run: its recipe as written, its records by kind, and a selection of its rollouts.

    ``rollouts_total`` counts the rollouts of the steps that were read, and ``rollout_steps_total`` the steps
    with rollouts. ``changes`` maps the set and the name of an estimate to the paired difference between the
    last and the first evaluation, if the folder has both with their problems. ``audit`` is that of an
    asynchronous run.
    """

    folder: Path
    recipe: dict[str, Any]
    train: list[Record]
    evals: list[Record]
    rollouts: list[RolloutRow] = field(default_factory=list[RolloutRow])
    rollouts_total: int = 0
    rollout_steps_read: int = 0
    rollout_steps_total: int = 0
    changes: dict[tuple[str, str], PairedDifference] = field(
        default_factory=dict[tuple[str, str], PairedDifference]
    )
    audit: KeptAudit | None = None

    @property
    def name(self) -> str:
        """The name of the run, or of its folder."""
        return str(self.recipe.get("name") or self.folder.resolve().name)

    def section(self, key: str) -> dict[str, Any]:
        """Return a section of the recipe; empty if it is missing."""
        return recipe_section(self.recipe, key)

    @property
    def finished(self) -> bool:
        """Whether all steps of the recipe are done; True if their number is unknown."""
        steps = self.section("trainer").get("steps")
        last = self.train[-1]["step"] if self.train else 0
        return not isinstance(steps, int) or last >= steps

    def dates(self) -> tuple[datetime, datetime] | None:
        """Return when the first and the last record were written, in local time."""
        stamps = [r["time"]["at"] for r in self.train + self.evals if "at" in r.get("time", {})]
        if not stamps:
            return None
        return datetime.fromtimestamp(min(stamps)), datetime.fromtimestamp(max(stamps))

    def series(self, records: Sequence[Record], key: str) -> list[tuple[float, float | None]]:
        """Return (step, value) of a metric for all records that have it. A non-finite value is None."""
        found = ((float(r["step"]), r[key]) for r in records if isinstance(r.get(key), int | float))
        return [(step, v if abs(v) < float("inf") else None) for step, v in found]


def read_run(folder: str | Path, *, max_rollouts: int = 400) -> RunData:
    """Read the folder of a run. It keeps at most ``max_rollouts`` rollouts, evenly spread over the steps.

    Raises UserError if the folder is no run, or if a file in it is damaged.
    """
    root = Path(folder)
    if not (root / "metrics.jsonl").is_file():
        raise UserError(
            f"{root}: the folder has no metrics.jsonl; use the folder of a run, such as runs/tiny"
        )
    steps = rollout_steps(root)
    chosen = _spread(steps, max_rollouts)
    rollouts, total = _rollouts(root, chosen, max_rollouts)
    return replace(
        run_of(root, read_metrics(root / "metrics.jsonl")),
        rollouts=rollouts,
        rollouts_total=total,
        rollout_steps_read=len(chosen),
        rollout_steps_total=len(steps),
    )


def run_of(root: Path, records: Sequence[Record]) -> RunData:
    """Return the run in a folder with these records, without its rollouts. Raises UserError."""
    evals = _evals(root, records)
    return RunData(
        folder=root,
        recipe=read_recipe(root / "recipe.yaml"),
        train=[r for r in records if r["kind"] == "train"],
        evals=evals,
        changes=paired_changes(root, evals),
        audit=read_audit(root),
    )


def eval_sets(evals: Sequence[Record]) -> list[str]:
    """Return the names of the problem sets in the eval records, held-out ones first."""
    names = {key.split("/")[1] for r in evals for key in r if key.startswith("eval/") and key.count("/") == 2}
    return sorted(names, key=lambda name: (name != "heldout", name))


def eval_estimates(evals: Sequence[Record], set_name: str) -> list[str]:
    """Return the names of the estimates that the records give for a set: each ``pass@k``, then ``reward``."""
    start = f"eval/{set_name}/pass@"
    tails = {key.removeprefix(start) for r in evals for key in r if key.startswith(start)}
    names = [f"pass@{k}" for k in sorted(int(tail) for tail in tails if tail.isdigit())]
    return [*names, REWARD] if any(f"eval/{set_name}/{REWARD}" in r for r in evals) else names


def result_rows(
    before: Record, after: Record, changes: Mapping[tuple[str, str], PairedDifference]
) -> Iterator[tuple[str, ...]]:
    """Yield the title, the value before, after and the change of each estimate, as text with 95% intervals.

    before, after: eval records; ``before`` may be empty. changes: the paired differences by problem set and
    name of the estimate; missing ones are not shown.
    """
    for name in eval_sets([after]):
        for estimate in eval_estimates([after], name):
            found = changes.get((name, estimate))
            yield (
                f"{SET_LABELS.get(name, name)}, {estimate}",
                *(_figure(record, f"eval/{name}/{estimate}", estimate) for record in (before, after)),
                with_interval(estimate, found.value, found.low, found.high, sign="+") if found else "",
            )


def _figure(record: Record, key: str, estimate: str) -> str:
    if key not in record:
        return "-"
    return with_interval(estimate, record[key], record[f"{key}_low"], record[f"{key}_high"])


def problem_counts(record: Record) -> str:
    """Return the number of problems of each set in an eval record, as text."""
    counts = ((name, record.get(f"eval/{name}/problems")) for name in eval_sets([record]))
    return ", ".join(f"{count} {SET_LABELS.get(name, name)}" for name, count in counts if count)


def _evals(root: Path, records: Sequence[Record]) -> list[Record]:
    """Return one record for each evaluated step, from training and from other processes.

    The later record of a step from the same writer replaces the earlier one.
    """
    merged: dict[int, Record] = {}
    files = sorted((root / "evaluations").glob("records*.jsonl"))
    for record in [*records, *(r for file in files for r in read_metrics(file))]:
        if record["kind"] == "eval":
            merged[record["step"]] = {**merged.get(record["step"], {}), **record}
    return [merged[step] for step in sorted(merged)]


def _spread(items: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` of the items, evenly spread, including the first and the last."""
    if count <= 0:
        return []
    if len(items) <= count:
        return list(items)
    # With one item the last is chosen, the most recent step.
    if count == 1:
        return [items[-1]]
    return sorted({items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)})


def _rollouts(root: Path, steps: Sequence[int], limit: int) -> tuple[list[RolloutRow], int]:
    kept: list[RolloutRow] = []
    total = 0
    for place, step in enumerate(steps):
        rows = with_groups(read_rollouts(root, step))
        total += len(rows)
        share = (limit - len(kept)) // (len(steps) - place)
        kept.extend(rows[i] for i in _spread(range(len(rows)), max(share, 1)))
    return kept, total


def read_recipe(file: Path) -> dict[str, Any]:
    """Return a recipe as it is written; empty if there is none. Raises UserError for an unreadable file.

    It is cached, because a live list requests it every few seconds.
    """
    return _recipe(file, file_stamp(file))


@lru_cache(maxsize=256)
def _recipe(file: Path, stamp: Stamp | None) -> dict[str, Any]:
    try:
        value = parse_yaml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as a recipe: {error}") from None
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def problem_sets(recipe: Mapping[str, Any]) -> list[str]:
    """Return the names or paths of the problem sets that a recipe names."""
    sets = recipe_section(recipe, "data").values()
    return [name for name in sets if isinstance(name, str) and name]


def recipe_section(recipe: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a section of a recipe; empty if it is missing."""
    value = recipe.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def paired_changes(root: Path, evals: Sequence[Record]) -> dict[tuple[str, str], PairedDifference]:
    """Return the changes from the first to the last evaluation of a run, by problem set and estimate.

    root: the run's folder, which holds the evaluations. Sets without both evaluations are left out.
    """
    if len(evals) < 2:
        return {}
    first, last = evals[0]["step"], evals[-1]["step"]
    found: dict[tuple[str, str], PairedDifference] = {}
    for name in eval_sets(evals):
        folders = [root / "evaluations" / f"step-{step}-{name}" for step in (first, last)]
        if not all((folder / EVALUATION_FILE).is_file() for folder in folders):
            continue
        before, after = map(cached_evaluation, folders)
        found |= {(name, one): change for one, change in paired_differences(before, after).items()}
    return found


def cached_evaluation(folder: Path) -> Evaluation:
    """Return the result of an evaluation. It is cached, because a live page requests it every few seconds.

    Raises UserError.
    """
    # The stamp is a part of the cache key, so a new result is read again.
    return _evaluation(folder, file_stamp(folder / EVALUATION_FILE))


@lru_cache(maxsize=64)
def _evaluation(folder: Path, stamp: Stamp | None) -> Evaluation:
    return load_evaluation(folder)


def result_of(run: RunData) -> dict[str, Any]:
    """Return the result of a run: its name, folder and steps, the numbers of its last step, and its
    evaluations.

    For each problem set and estimate there are the first and the last evaluation (``before`` and ``after``,
    each ``{"step", "value", "low", "high"}``) and the paired ``change`` between them. ``change`` is null if
    the folder does not have both evaluations by problem, or has only one. Non-finite numbers are null.
    """
    trainer = run.section("trainer")
    last = run.train[-1] if run.train else {}
    numbers = {key: _finite(value) for key, value in last.items() if isinstance(value, int | float)}
    return {
        "name": run.name,
        "folder": str(run.folder),
        "step": max((record["step"] for record in run.train), default=0),
        "steps": trainer.get("steps") or None,
        "last": {key: value for key, value in numbers.items() if key != "step"},
        "evaluations": [
            _evaluation_result(run, name, estimate)
            for name in eval_sets(run.evals)
            for estimate in eval_estimates(run.evals, name)
        ],
    }


def _evaluation_result(run: RunData, name: str, estimate: str) -> dict[str, Any]:
    key = f"eval/{name}/{estimate}"
    change = run.changes.get((name, estimate))
    return {
        "set": name,
        "estimate": estimate,
        "before": _estimate(run.evals[0], key),
        "after": _estimate(run.evals[-1], key),
        "change": change and {"value": change.value, "low": change.low, "high": change.high},
    }


def _estimate(record: Record, key: str) -> dict[str, Any] | None:
    if key not in record:
        return None
    bounds = {side: _finite(record.get(f"{key}_{side}")) for side in ("low", "high")}
    return {"step": record["step"], "value": _finite(record[key]), **bounds}


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None

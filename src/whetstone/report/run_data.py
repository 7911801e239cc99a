"""What a run's folder holds, read for the page. Parts that are missing are simply empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml

from whetstone.errors import UserError
from whetstone.evaluate.passk import Difference, paired_difference
from whetstone.evaluate.results import EVALUATION_FILE, Evaluation, load_evaluation
from whetstone.report.audit import KeptAudit, read_audit
from whetstone.report.groups import Placed, placed
from whetstone.report.metrics import Record, read_metrics
from whetstone.report.rollouts import read_rollouts, rollout_steps


@dataclass(frozen=True)
class RunData:
    """A run: its recipe as written, its records by kind, and a choice of its rollouts.

    ``rollouts_total`` counts the rollouts of the steps that were read, ``rollout_steps_total`` the
    steps that have some. ``changes`` maps (set, k) to the paired difference of the last evaluation
    and the first, where the folder keeps both with their problems. ``audit`` is of an asynchronous run.
    """

    folder: Path
    recipe: dict[str, Any]
    train: list[Record]
    evals: list[Record]
    rollouts: list[Placed] = field(default_factory=list[Placed])
    rollouts_total: int = 0
    rollout_steps_read: int = 0
    rollout_steps_total: int = 0
    changes: dict[tuple[str, int], Difference] = field(default_factory=dict[tuple[str, int], Difference])
    audit: KeptAudit | None = None

    @property
    def name(self) -> str:
        """The run's name, or its folder's."""
        return str(self.recipe.get("name") or self.folder.resolve().name)

    def section(self, key: str) -> dict[str, Any]:
        """A section of the recipe; empty when it is not there."""
        value = self.recipe.get(key)
        return cast(dict[str, Any], value) if isinstance(value, dict) else {}

    def dates(self) -> tuple[datetime, datetime] | None:
        """When the first and the last record were written, in local time."""
        stamps = [r["time"]["at"] for r in self.train + self.evals if "at" in r.get("time", {})]
        if not stamps:
            return None
        return datetime.fromtimestamp(min(stamps)), datetime.fromtimestamp(max(stamps))

    def series(self, records: Sequence[Record], key: str) -> list[tuple[float, float | None]]:
        """(step, value) of a metric in the records that have it; a non-finite value is None."""
        found = ((float(r["step"]), r[key]) for r in records if isinstance(r.get(key), int | float))
        return [(step, v if abs(v) < float("inf") else None) for step, v in found]


def read_run(folder: str | Path, *, max_rollouts: int = 400) -> RunData:
    """Read a run's folder. At most ``max_rollouts`` rollouts are kept, spread evenly over the steps.

    Raises UserError when the folder is no run, or a file in it is broken.
    """
    root = Path(folder)
    if not (root / "metrics.jsonl").is_file():
        raise UserError(f"{root}: no metrics.jsonl there; give the folder of a run, such as runs/tiny")
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
    """The run in a folder whose records have been read, without its rollouts. Raises UserError."""
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
    """Names of the problem sets in the eval records, held-out ones first."""
    names = {key.split("/")[1] for r in evals for key in r if key.startswith("eval/") and key.count("/") == 2}
    return sorted(names, key=lambda name: (name != "heldout", name))


def eval_ks(evals: Sequence[Record], set_name: str) -> list[int]:
    """The k of the pass@k that the records give for a set."""
    start = f"eval/{set_name}/pass@"
    tails = {key.removeprefix(start) for r in evals for key in r if key.startswith(start)}
    return sorted(int(tail) for tail in tails if tail.isdigit())


def _evals(root: Path, records: Sequence[Record]) -> list[Record]:
    """One record for each evaluated step: what training wrote, and those who evaluated its checkpoints.

    Of two records of a step from the same writer the later one holds.
    """
    merged: dict[int, Record] = {}
    files = sorted((root / "evaluations").glob("records*.jsonl"))
    for record in [*records, *(r for file in files for r in read_metrics(file))]:
        if record["kind"] == "eval":
            merged[record["step"]] = {**merged.get(record["step"], {}), **record}
    return [merged[step] for step in sorted(merged)]


def _spread(items: Sequence[int], count: int) -> list[int]:
    """At most ``count`` of the items, evenly spread, the first and the last among them."""
    if count <= 0:
        return []
    if len(items) <= count:
        return list(items)
    if count == 1:
        return [items[-1]]
    return sorted({items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)})


def _rollouts(root: Path, steps: Sequence[int], limit: int) -> tuple[list[Placed], int]:
    kept: list[Placed] = []
    total = 0
    for place, step in enumerate(steps):
        rows = placed(read_rollouts(root, step))
        total += len(rows)
        share = (limit - len(kept)) // (len(steps) - place)
        kept.extend(rows[i] for i in _spread(range(len(rows)), max(share, 1)))
    return kept, total


def read_recipe(file: Path) -> dict[str, Any]:
    """A recipe as it is written; empty where there is none. Raises UserError where it cannot be read."""
    try:
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as a recipe: {error}") from None
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def paired_changes(root: Path, evals: Sequence[Record]) -> dict[tuple[str, int], Difference]:
    """The change of pass@k from the first to the last evaluation of a run, by problem set and k.

    root: the run's folder, which holds the evaluations. Sets without both evaluations are left out.
    """
    if len(evals) < 2:
        return {}
    first, last = evals[0]["step"], evals[-1]["step"]
    found: dict[tuple[str, int], Difference] = {}
    for name in eval_sets(evals):
        folders = [root / "evaluations" / f"step-{step}-{name}" for step in (first, last)]
        if not all((folder / EVALUATION_FILE).is_file() for folder in folders):
            continue
        before, after = map(kept_evaluation, folders)
        for k in eval_ks(evals, name):
            a, b = before.values(k), after.values(k)
            if a.keys() & b.keys():
                found[name, k] = paired_difference(a, b)
    return found


def folder_stamp(folder: Path) -> tuple[int, int]:
    """What changes with the result of an evaluation; zeros where there is none."""
    try:
        state = (folder / EVALUATION_FILE).stat()
    except OSError:
        return 0, 0
    return state.st_ino, state.st_mtime_ns


def kept_evaluation(folder: Path) -> Evaluation:
    """The result of an evaluation, read once: who looks at a run that is written asks for it again and again.

    Raises UserError.
    """
    return _evaluation(folder, folder_stamp(folder))


@lru_cache(maxsize=64)
def _evaluation(folder: Path, stamp: tuple[int, int]) -> Evaluation:
    return load_evaluation(folder)

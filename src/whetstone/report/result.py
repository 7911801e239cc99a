"""What a run brought, as plain data for scripts: the figures at the head of its page."""

from __future__ import annotations

from typing import Any

from whetstone.report.metrics import Record
from whetstone.report.run_data import RunData, eval_ks, eval_sets


def result_of(run: RunData) -> dict[str, Any]:
    """A run's name, folder and steps, the numbers of its last step, and of each problem set and k the first
    evaluation, the last one and the paired change between them.

    ``before`` and ``after`` are ``{"step", "value", "low", "high"}``; ``change`` is null where the folder
    does not keep both evaluations problem by problem, and where there is one. What is not finite is null.
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
            _measured(run, name, k) for name in eval_sets(run.evals) for k in eval_ks(run.evals, name)
        ],
    }


def _measured(run: RunData, name: str, k: int) -> dict[str, Any]:
    key = f"eval/{name}/pass@{k}"
    change = run.changes.get((name, k))
    return {
        "set": name,
        "k": k,
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

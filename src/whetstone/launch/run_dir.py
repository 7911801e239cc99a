"""The folder of a run: which recipe it belongs to, and where to resume."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whetstone.errors import UserError
from whetstone.flow.settings import Gpus
from whetstone.launch.dtype import as_recorded
from whetstone.launch.recipe import Recipe, dump_recipe, load_recipe
from whetstone.launch.run_lock import check_unlocked
from whetstone.outputs import write_file
from whetstone.report.audit import AUDIT_FILE
from whetstone.report.metrics import read_metrics
from whetstone.weights.settings import WeightsSection

_MAY_CHANGE = {
    "trainer.steps",
    "trainer.checkpoint_every",
    "trainer.keep_checkpoints",
    "trainer.async_checkpoints",
    "trainer.keep_best",
    "trainer.wait_s",
    "evaluation.process",
    "evaluation.threads",
    "evaluation.wait_s",
    "judge.workers",
    "report.tensorboard",
    "report.wandb",
    "report.trackio",
    "out",
    "flow.replicas",
    *(f"flow.gpus.{key}" for key in Gpus.model_fields),
    "flow.room",
    "flow.lease_s",
    "flow.silence_s",
    "flow.most_failures",
    "flow.stall_s",
    "flow.restarts",
    "flow.host",
    "flow.port",
    "flow.url",
    "flow.log",
    *(f"flow.weights.{key}" for key in WeightsSection.model_fields),
}
"""Keys that a resumed run may set anew: they change how far and how fast it goes, not what it computes."""

_ROUNDING = {
    "model.threads": "another number of threads adds up in another order",
    "trainer.micro_batch_tokens": "another size of micro-batches adds up in another order",
    "flow.ranks": "another number of ranks adds up in another order",
    "trainer.offload": "another device rounds in another way",
}
"""Keys that change the last bits of what is computed, and nothing else: see ``deterministic``."""


_RUN_FILES = {
    *("checkpoints", "evaluations", "flow", AUDIT_FILE, "flow-url", "logs", "metrics.jsonl", "report.html"),
    *("rollouts", "start", "verifier", "views", "weights"),
}
_WAY_OUT = "name a folder for the run with out=FOLDER"


def check_folder(recipe: Recipe) -> None:
    """Raise UserError for a folder in which the recipe cannot be run.

    It cannot be made or written, holds something else than a run or the run of another recipe, or another
    process of this machine trains in it.
    """
    folder = recipe.run_dir()
    try:
        there = folder.exists()
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not nearest.is_dir():
            raise UserError(f"`out`: {nearest} is a file; {_WAY_OUT}")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise UserError(f"`out`: {nearest} cannot be written; {_WAY_OUT}")
        names = sorted(path.name for path in folder.iterdir()) if there else []
    except (OSError, ValueError) as error:
        raise UserError(f"`out`: {folder}: {error}; {_WAY_OUT}") from None
    check_unlocked(folder)
    if "recipe.yaml" in names:
        if not recipe.trainer.passes:  # their number of steps is known once the problems are read
            check_recipe(folder, as_recorded(recipe))
    elif other := [name for name in names if not name.startswith(".") and name not in _RUN_FILES]:
        raise UserError(f"`out`: {folder} holds {other[0]}, which is not of a run; {_WAY_OUT}")


def check_recipe(folder: Path, recipe: Recipe) -> None:
    """Raise UserError, naming the keys that differ, when the folder holds a run with another recipe."""
    file = folder / "recipe.yaml"
    if not file.exists():
        return
    # Read as a recipe, for an earlier version may have written what is the same in other words.
    before = _flat(load_recipe(file).model_dump(mode="json"))
    now = _flat(recipe.model_dump(mode="json"))
    may_change = _MAY_CHANGE if recipe.deterministic else _MAY_CHANGE | _ROUNDING.keys()
    if recipe.trainer.lr_decay != "constant" and not recipe.trainer.lr_decay_steps:
        may_change = may_change - {"trainer.steps"}  # the rate of every step depends on it
    changed = sorted(
        k for k in before.keys() | now.keys() if before.get(k) != now.get(k) and k not in may_change
    )
    if not changed:
        return
    keys = [f"{k} ({before.get(k)!r} there, {now.get(k)!r} now)" for k in changed]
    reasons = [
        f"`deterministic` promises the same bits, and {_ROUNDING[k]}" for k in changed if k in _ROUNDING
    ]
    raise UserError(
        f"{folder} holds a run with another recipe: {'; '.join([', '.join(keys), *reasons])}. "
        "Give the same recipe to resume it, or name another folder with out=FOLDER"
    )


def resume_from(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The checkpoint that a run in this folder goes on from; None for a run that has made no step.

    ``say`` is told of checkpoints that are passed over. Raises UserError when there were steps and no whole
    checkpoint is left: beginning anew would delete what they wrote.
    """
    from whetstone.trainer.checkpoint import (
        latest_checkpoint,  # loads torch, which `check_recipe` does not need
    )

    checkpoint, metrics = latest_checkpoint(folder, on_skip=say), folder / "metrics.jsonl"
    if checkpoint is None and metrics.exists():
        made = max((r["step"] for r in read_metrics(metrics) if r["kind"] == "train"), default=0)
        if made:
            raise UserError(
                f"{folder} holds a run of {made} steps and no checkpoint of it. Put its `checkpoints` back "
                f"to resume it; or start anew in another folder with out=FOLDER, or after removing {folder}"
            )
    return checkpoint


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the resolved recipe, every field included."""
    write_file(folder / "recipe.yaml", [dump_recipe(recipe).encode()])


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for name, child in value.items() for k, v in _flat(child, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): value}

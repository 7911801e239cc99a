"""The folder of a run: its recipe, the checkpoint to resume from, and the flow's URL."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file
from whetstone.core.run_lock import check_unlocked
from whetstone.engine.settings import MachineSection
from whetstone.report.audit import AUDIT_FILE
from whetstone.report.metrics import read_metrics
from whetstone.report.starts import NOTES_FILE, STARTS_FILE
from whetstone.rollout.settings import Gpus
from whetstone.run.auto import with_recorded_choices
from whetstone.run.recipe import Recipe, dump_recipe, load_recipe
from whetstone.weights.settings import WeightsSection

# Keys that may differ in a resumed run. They change its length and speed, not its results.
_CHANGEABLE = {
    "trainer.steps",
    "trainer.checkpoint_every",
    "trainer.keep_checkpoints",
    "trainer.wait_s",
    "evaluation.process",
    "evaluation.threads",
    "evaluation.wait_s",
    "judge.workers",
    "report.tensorboard",
    "report.wandb",
    "report.trackio",
    "out",
    "machine",
    *(f"machine.{key}" for key in MachineSection.model_fields),
    "flow.replicas",
    *(f"flow.gpus.{key}" for key in Gpus.model_fields),
    "flow.room",
    "flow.lease_s",
    "flow.silence_s",
    "flow.restarts",
    "flow.host",
    "flow.port",
    "flow.url",
    "flow.log",
    *(f"flow.weights.{key}" for key in WeightsSection.model_fields),
}

# Keys that only change rounding, and the reason; see ``deterministic``.
_ROUNDING_ONLY = {
    "model.threads": "another number of threads adds up in another order",
    "trainer.micro_batch_tokens": "another size of micro-batches adds up in another order",
    "trainer.logits_per_chunk": "another size of chunks adds up in another order",
    "flow.ranks": "another number of ranks adds up in another order",
    "trainer.offload": "another device rounds in another way",
}


_RUN_FILES = {
    *("checkpoints", "evaluations", "flow", AUDIT_FILE, "flow-url", "logs", "metrics.jsonl", "report.html"),
    *("rollouts", "start", STARTS_FILE, NOTES_FILE, "verifier", "views", "weights"),
}
_REMEDY = "give a folder for the run with out=FOLDER"


def check_folder(recipe: Recipe) -> None:
    """Raise UserError for a folder in which the recipe cannot run.

    It cannot be created or written, contains other files or the run of another recipe, or another process on
    this machine trains in it.
    """
    folder = recipe.run_dir()
    try:
        there = folder.exists()
        # The folder is created later, so its nearest existing parent must be writable.
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not nearest.is_dir():
            raise UserError(f"`out`: {nearest} is a file; {_REMEDY}")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise UserError(f"`out`: {nearest} cannot be written; {_REMEDY}")
        names = sorted(path.name for path in folder.iterdir()) if there else []
    except (OSError, ValueError) as error:
        raise UserError(f"`out`: {folder}: {error}; {_REMEDY}") from None
    check_unlocked(folder)
    if "recipe.yaml" in names:
        # With passes, the number of steps is only known once the problems are read.
        if not recipe.trainer.passes:
            check_recipe(folder, with_recorded_choices(recipe))
    elif other := [name for name in names if not name.startswith(".") and name not in _RUN_FILES]:
        raise UserError(f"`out`: {folder} contains {other[0]}, which is not a file of a run; {_REMEDY}")


def check_recipe(folder: Path, recipe: Recipe) -> None:
    """Raise UserError, naming the keys that differ, if the folder has a run with another recipe."""
    file = folder / "recipe.yaml"
    if not file.exists():
        return
    # Parse the file as a recipe: an earlier version may have written equal values in another form.
    before = _flatten(load_recipe(file).model_dump(mode="json"))
    now = _flatten(recipe.model_dump(mode="json"))
    may_change = _CHANGEABLE if recipe.deterministic else _CHANGEABLE | _ROUNDING_ONLY.keys()
    if recipe.trainer.lr_decay != "constant" and not recipe.trainer.lr_decay_steps:
        # The learning rate of every step depends on the number of steps.
        may_change = may_change - {"trainer.steps"}
    changed = sorted(
        k for k in before.keys() | now.keys() if before.get(k) != now.get(k) and k not in may_change
    )
    if not changed:
        return
    keys = [f"{k} ({before.get(k)!r} there, {now.get(k)!r} now)" for k in changed]
    reasons = [
        f"`deterministic` promises the same bits, and {_ROUNDING_ONLY[k]}"
        for k in changed
        if k in _ROUNDING_ONLY
    ]
    raise UserError(
        f"{folder} contains a run with another recipe: {'; '.join([', '.join(keys), *reasons])}. "
        "Give the same recipe to resume it, or another folder with out=FOLDER"
    )


def find_checkpoint(folder: Path, log: Callable[[str], None]) -> Path | None:
    """Return the checkpoint to resume from; None for a run without steps.

    ``log`` reports skipped checkpoints. Raises UserError if there were steps but no valid checkpoint is left,
    because a new start would delete their results.
    """
    # This imports torch, which `check_recipe` does not need.
    from whetstone.trainer.checkpoint import latest_checkpoint

    checkpoint, metrics = latest_checkpoint(folder, on_skip=log), folder / "metrics.jsonl"
    if checkpoint is None and metrics.exists():
        steps = max((r["step"] for r in read_metrics(metrics) if r["kind"] == "train"), default=0)
        if steps:
            raise UserError(
                f"{folder} contains a run of {steps} steps without a checkpoint. Restore its `checkpoints` "
                f"to resume it, start again in another folder with out=FOLDER, or remove {folder}"
            )
    return checkpoint


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the resolved recipe with every field."""
    write_file(folder / "recipe.yaml", [dump_recipe(recipe).encode()])


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for name, child in value.items() for k, v in _flatten(child, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): value}


# The folder of the roles' output.
LOGS = "logs"
_FLOW_FILE = "flow-url"


def write_flow_url(run: Path, url: str) -> None:
    """Store the URL of this run's flow, for ``whetstone view RUN --text``."""
    write_file(run / _FLOW_FILE, [f"{url}\n".encode()])


def flow_url_of(run: Path) -> str | None:
    """Return the last URL of a run's flow; None if it never had one."""
    try:
        return (run / _FLOW_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return None

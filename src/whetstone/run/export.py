"""Exports a checkpoint as a plain Hugging Face folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from whetstone.core.errors import UserError
from whetstone.core.outputs import new_folder
from whetstone.trainer.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint

_TRAINING_FILES = ("trainer", "state.json", "manifest.json")


def _resolve_checkpoint(where: Path) -> Path:
    """Return the checkpoint that RUN, RUN/step-N or RUN/checkpoints/step-N names; of a run, the newest valid
    one."""
    if (where / "manifest.json").is_file():
        return where
    inside = where.parent / "checkpoints" / where.name
    if (inside / "manifest.json").is_file():
        return inside
    newest = latest_checkpoint(where) if (where / "checkpoints").is_dir() else None
    if newest is None:
        steps = sorted(p.name for p in (where.parent / "checkpoints").glob("step-*"))
        there = f"; there are {', '.join(steps)}" if steps else ""
        raise UserError(f"{where}: no checkpoint of a run{there}; give RUN/step-N, or RUN for the newest")
    return newest


def model_of(where: Path) -> tuple[Checkpoint, dict[str, Path]]:
    """Return the checkpoint that RUN or RUN/step-N names, and the files of its model, by their path in it.

    Raises UserError for an invalid checkpoint.
    """
    # Verifies the checksums of its files.
    checkpoint = load_checkpoint(_resolve_checkpoint(where))
    files = (file for file in sorted(checkpoint.path.rglob("*")) if file.is_file())
    names = {str(file.relative_to(checkpoint.path)): file for file in files}
    return checkpoint, {n: file for n, file in names.items() if Path(n).parts[0] not in _TRAINING_FILES}


def export(where: Path, out: Path) -> Path:
    """Write the model of a checkpoint, with tokenizer and chat template, to the new folder ``out``.

    Returns the checkpoint. The folder is written completely or not at all. Raises UserError for an invalid
    checkpoint.
    """
    checkpoint, files = model_of(where)
    with new_folder(out) as folder:
        for name, file in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / name)
    return checkpoint.path

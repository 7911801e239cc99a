"""Exports a checkpoint as a plain Hugging Face folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from whetstone.core.errors import UserError
from whetstone.core.outputs import new_folder
from whetstone.trainer.checkpoint import latest_checkpoint, load_checkpoint

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


def export(where: Path, out: Path) -> Path:
    """Write the model of a checkpoint, with tokenizer and chat template, to the new folder ``out``.

    Returns the checkpoint. The folder is written completely or not at all. Raises UserError for an invalid
    checkpoint.
    """
    source = _resolve_checkpoint(where)
    # Verifies the checksums of its files.
    load_checkpoint(source)
    with new_folder(out) as folder:
        for file in source.iterdir():
            if file.name not in _TRAINING_FILES:
                if file.is_dir():
                    shutil.copytree(file, folder / file.name)
                else:
                    shutil.copyfile(file, folder / file.name)
    return source

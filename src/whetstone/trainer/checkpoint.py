"""Checkpoints that survive being killed: written beside, checked, then renamed into place.

``checkpoints/step-N/`` is a plain model folder (config, weights, tokenizer) with three files more:
``trainer.safetensors`` (masters, moments, counters), ``state.json`` (plain data of the loop) and
``manifest.json`` (size and SHA-256 of every other file). A folder is a checkpoint only when its
manifest holds, so a torn one is never taken for whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whetstone.errors import UserError
from whetstone.outputs import no_room, sync

log = logging.getLogger(__name__)

_MANIFEST, _STATE, _TRAINER = "manifest.json", "state.json", "trainer.safetensors"
_NAME = re.compile(r"step-\d+(\.replaced)?")
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`load_checkpoint` returns; ``path`` is also the model folder of that step."""

    path: Path
    step: int
    trainer_state: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(
    run_dir: Path,
    step: int,
    *,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    trainer_state: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
) -> Path:
    """Write ``checkpoints/step-<step>`` under ``run_dir``, then remove all but the newest ``keep``.

    ``state`` must be plain JSON data. Until the last rename the older checkpoints are untouched, so
    whenever this process dies a valid one remains. Raises UserError when the disk is full: then nothing
    is left of the new checkpoint.
    """
    folder = run_dir / "checkpoints"
    target = folder / f"step-{step}"
    unfinished = folder / f"{_UNFINISHED}step-{step}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        unfinished.mkdir()
        _write(unfinished, step, model, tokenizer, trainer_state, state)
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if no_room(error):
            raise UserError(_full_message(target, run_dir)) from error
        raise
    _put_in_place(unfinished, target)
    _prune(folder, step, keep)
    return target


def latest_checkpoint(run_dir: Path, on_skip: Callable[[str], None] = log.warning) -> Path | None:
    """The newest whole checkpoint of a run; None when it has made none yet.

    ``on_skip`` is told of each broken one, and why. Raises UserError when there are checkpoints and none is
    whole: the run cannot go on, and must not begin anew over what it has written.
    """
    faults: list[str] = []
    for path in _newest_first(run_dir / "checkpoints"):
        fault = checkpoint_fault(path)
        if fault is None:
            for skipped in faults:
                on_skip(f"{skipped} is not a whole checkpoint; {path} is taken")
            return path
        faults.append(f"{path} ({fault})")
    if faults:
        raise UserError(
            f"no checkpoint of this run is whole: {', '.join(faults)}. Put a whole one there, from a copy, "
            f"to resume it; or start anew in another folder with out=FOLDER, or after removing {run_dir}"
        )
    return None


def checkpoint_fault(path: Path) -> str | None:
    """Why a folder is no valid checkpoint, or None when every file is as its manifest says."""
    try:
        files = json.loads((path / _MANIFEST).read_bytes())["files"]
        for name, entry in files.items():
            file = path / name
            if not file.is_file():
                return f"{name} is missing"
            size = file.stat().st_size
            if size != entry["bytes"]:
                return f"{name} has {size} bytes instead of {entry['bytes']}"
            if _sha256(file) != entry["sha256"]:
                return f"the contents of {name} have changed"
    except FileNotFoundError:
        return f"{_MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{_MANIFEST} cannot be read: {error}"
    return None if {_STATE, _TRAINER} <= set(files) else "the manifest lists no training state"


def load_checkpoint(path: Path) -> Checkpoint:
    """Check a checkpoint and read its training state. Raises UserError when it is broken."""
    fault = checkpoint_fault(path)
    if fault is not None:
        raise UserError(f"{path} is not a whole checkpoint: {fault}; resume from another step of the run")
    data = json.loads((path / _STATE).read_bytes())
    return Checkpoint(path, data["step"], load_file(path / _TRAINER), data["state"])


def _write(
    folder: Path,
    step: int,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    trainer_state: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file({name: tensor.contiguous() for name, tensor in trainer_state.items()}, folder / _TRAINER)
    text = json.dumps({"step": step, "state": state}, allow_nan=False)
    (folder / _STATE).write_text(text, encoding="utf-8")
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    entries = {
        str(file.relative_to(folder)): {"bytes": file.stat().st_size, "sha256": _sha256(file)}
        for file in files
    }
    (folder / _MANIFEST).write_text(json.dumps({"files": entries}, indent=1), encoding="utf-8")
    for path in [*files, folder / _MANIFEST, *(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync(path)


def _put_in_place(unfinished: Path, target: Path) -> None:
    """Rename into place. An older folder of the same step stays readable until the new one is there."""
    replaced = target.with_name(target.name + ".replaced")
    if target.exists():
        _remove(replaced)
        target.rename(replaced)
    unfinished.rename(target)
    sync(target.parent)
    _remove(replaced)


def _prune(folder: Path, step: int, keep: int) -> None:
    """Keep ``keep`` checkpoints up to ``step``. Later ones are left by a resume that skipped broken ones."""
    upto = [path for path in _newest_first(folder) if _step(path) <= step]
    later = [path for path in _newest_first(folder) if _step(path) > step]
    for path in [*upto[keep:], *(path for path in later if checkpoint_fault(path) is not None)]:
        _remove(path)


def _remove(path: Path) -> None:
    """Rename, then delete, so that a kill half-way leaves nothing that looks like a checkpoint."""
    if path.exists():
        doomed = path.with_name(f"{_UNFINISHED}{path.name}")
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)


def _sweep(folder: Path) -> None:
    """Delete what a killed save or removal left behind."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(path)


def _newest_first(folder: Path) -> list[Path]:
    """Checkpoint folders, whole or not; of the same step the replaced one comes second."""
    found = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (-_step(path), path.suffix))


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _full_message(target: Path, run_dir: Path) -> str:
    valid = next((p for p in _newest_first(run_dir / "checkpoints") if checkpoint_fault(p) is None), None)
    rest = (
        f"{valid} is still valid: free some space and resume from it" if valid else "no checkpoint exists yet"
    )
    return f"no space left to write {target}; {rest}, or give the run another folder with `out`"

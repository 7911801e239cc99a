"""Checkpoints that survive being killed: written beside, checked, then renamed into place.

``checkpoints/step-N/`` is a plain model folder (config, weights, tokenizer) with three things more:
``trainer/`` (masters, moments and counters, written by torch's distributed checkpoint: each rank its part,
to be read by any number of ranks), ``state.json`` (plain data of the loop) and ``manifest.json`` (size and
SHA-256 of every other file). A folder is a checkpoint only when its manifest holds, so a torn one is never
taken for whole. All ranks save and read together; the folder must be one that all of them see.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whetstone.errors import UserError
from whetstone.outputs import no_room, sync
from whetstone.trainer.ranks import Ranks

log = logging.getLogger(__name__)

_MANIFEST, _STATE, _TRAINER = "manifest.json", "state.json", "trainer"
_NAME = re.compile(r"step-\d+(\.replaced)?")
_UNFINISHED = ".unfinished-"
_SHORT_FILE = "unexpected pos"
"""What torch says when a file took less than it was given: its own error hides that of the disk."""


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`load_checkpoint` returns; ``path`` is also the model folder of that step."""

    path: Path
    step: int
    state: dict[str, Any]

    def read_into(self, trainer_state: dict[str, Tensor], ranks: Ranks | None = None) -> None:
        """Fill the tensors of a trainer's state, each rank its part, however many ranks wrote them.

        Raises UserError when names or shapes are not those that were saved.
        """
        reader = FileSystemReader(self.path / _TRAINER)
        saved = reader.read_metadata().state_dict_metadata
        for name, tensor in trainer_state.items():
            entry = saved.get(name)
            shape = entry.size if isinstance(entry, TensorStorageMetadata) else None
            if shape != tensor.shape:
                found = "missing" if shape is None else f"of shape {list(shape)}"
                raise UserError(
                    f"{self.path}: the saved optimizer state does not fit the model: `{name}` is {found}, "
                    f"not {list(tensor.shape)}; resume with the model the run was started with"
                )
        state_dict_loader.load(trainer_state, storage_reader=reader, no_dist=_alone(ranks))


@dataclass(frozen=True)
class Contents:
    """What is saved of one step. ``model`` can be saved by transformers, and is None on all ranks but the
    first; ``trainer_state`` is a rank's part of it; ``state`` must be plain JSON data."""

    step: int
    model: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase
    trainer_state: Mapping[str, Tensor]
    state: Mapping[str, Any]


def write_checkpoint(run_dir: Path, contents: Contents, ranks: Ranks) -> Path:
    """Write ``checkpoints/step-<step>`` under ``run_dir``.

    Until the last rename the older checkpoints are untouched, so whenever this process dies a valid one
    remains. Raises UserError when the disk is full: then nothing is left of the new checkpoint. All ``ranks``
    write together, and return when it is in place.
    """
    folder = run_dir / "checkpoints"
    target = folder / f"step-{contents.step}"
    unfinished = folder / f"{_UNFINISHED}step-{contents.step}"

    def begin() -> None:
        if contents.model is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        unfinished.mkdir()
        _write_model(unfinished, contents, contents.model)

    try:
        ranks.agree(begin, "the model of a checkpoint")
        writer = FileSystemWriter(unfinished / _TRAINER)
        state_dict_saver.save(
            dict(contents.trainer_state),
            storage_writer=writer,
            process_group=ranks.group,
            no_dist=_alone(ranks),
        )
        hashed = ranks.agree(lambda: _hashes(unfinished, ranks), "the files of a checkpoint")
        parts = ranks.gather_data(hashed, "the hashes of a checkpoint")
        ranks.agree(lambda: _seal(unfinished, parts) if ranks.first else None, "the manifest of a checkpoint")
    except BaseException as error:
        if ranks.first:
            shutil.rmtree(unfinished, ignore_errors=True)
        if _no_room(error):
            raise UserError(_full_message(target, run_dir)) from error
        raise
    if ranks.first:
        _put_in_place(unfinished, target)
    ranks.wait("a checkpoint to be in place")
    return target


def prune_checkpoints(
    run_dir: Path, step: int, keep: int, worth: Callable[[list[int]], Collection[int]] | None = None
) -> None:
    """Keep the newest ``keep`` checkpoints up to ``step``, and of all these the steps that ``worth`` names.

    Later ones are left by a resume that skipped broken ones: these go.
    """
    folder = run_dir / "checkpoints"
    upto = [path for path in _newest_first(folder) if _step(path) <= step]
    later = [path for path in _newest_first(folder) if _step(path) > step]
    also = worth([_step(path) for path in upto]) if worth else ()
    old = [path for path in upto[keep:] if _step(path) not in also]
    for path in [*old, *(path for path in later if checkpoint_fault(path) is not None)]:
        _remove(path)


def remove_checkpoints_after(run_dir: Path, step: int) -> None:
    """Remove the checkpoints of later steps, whole or not."""
    for path in _newest_first(run_dir / "checkpoints"):
        if _step(path) > step:
            _remove(path)


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
    whole = {_STATE, f"{_TRAINER}/.metadata"} <= set(files)
    return None if whole else "the manifest lists no training state"


def load_checkpoint(path: Path) -> Checkpoint:
    """Check a checkpoint and read its plain data. Raises UserError when it is broken."""
    fault = checkpoint_fault(path)
    if fault is not None:
        raise UserError(f"{path} is not a whole checkpoint: {fault}; resume from another step of the run")
    data = json.loads((path / _STATE).read_bytes())
    return Checkpoint(path, data["step"], data["state"])


def _write_model(folder: Path, contents: Contents, model: PreTrainedModel) -> None:
    model.save_pretrained(folder)
    contents.tokenizer.save_pretrained(folder)
    text = json.dumps({"step": contents.step, "state": contents.state}, allow_nan=False)
    (folder / _STATE).write_text(text, encoding="utf-8")


def _hashes(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Size and hash of this rank's share of the files, since hashing takes as long as writing."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {
        str(file.relative_to(folder)): {"bytes": file.stat().st_size, "sha256": _sha256(file)}
        for file in files[ranks.rank :: ranks.size]
    }


def _seal(folder: Path, hashes: list[dict[str, Any]]) -> None:
    """Write the manifest, and make all of it last."""
    entries = {name: entry for part in hashes for name, entry in part.items()}
    text = json.dumps({"files": dict(sorted(entries.items()))}, indent=1)
    (folder / _MANIFEST).write_text(text, encoding="utf-8")
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def _alone(ranks: Ranks | None) -> bool:
    """Whether there is no process group to save or load with, which is meant and not to be warned of."""
    alone = ranks is None or ranks.size == 1
    if alone:  # for good: a context of filters is of all threads, and checkpoints are written in another
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
    return alone


def _no_room(error: BaseException) -> bool:
    """Whether a disk was full, on whichever rank: torch gathers the errors of all in one of its own."""
    if isinstance(error, CheckpointException):
        return any(no_room(cause) or _SHORT_FILE in str(cause) for cause, _ in error.failures.values())
    return no_room(error)


def _put_in_place(unfinished: Path, target: Path) -> None:
    """Rename into place. An older folder of the same step stays readable until the new one is there."""
    replaced = target.with_name(target.name + ".replaced")
    if target.exists():
        _remove(replaced)
        target.rename(replaced)
    unfinished.rename(target)
    sync(target.parent)
    _remove(replaced)


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

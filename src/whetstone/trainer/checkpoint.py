"""Checkpoints that survive a kill: written to a temporary folder, checked, then renamed.

``checkpoints/step-N/`` is a plain model folder (config, weights, tokenizer) with three additions:
``trainer/`` (master weights, moments and counters in torch's distributed checkpoint format; each rank writes
its part, any number of ranks can read), ``state.json`` (plain data of the loop) and ``manifest.json`` (size
and SHA-256 of every other file). A folder only counts as a checkpoint if its manifest matches, so an
incomplete one is never used. All ranks save and read together; they must share the folder.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whetstone.core.errors import UserError
from whetstone.core.outputs import file_sha256, no_room, sync
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.sharding import whole_model

log = logging.getLogger(__name__)

_MANIFEST, _STATE, _TRAINER = "manifest.json", "state.json", "trainer"
_NAME = re.compile(r"step-\d+(\.replaced)?")
_UNFINISHED = ".unfinished-"
# torch's message for a file that took fewer bytes than written. It hides the error of the disk.
_SHORT_FILE = "unexpected pos"


@dataclass(frozen=True)
class Checkpoint:
    """The result of :func:`load_checkpoint`; ``path`` is also the model folder of that step."""

    path: Path
    step: int
    state: dict[str, Any]

    def read_into(self, trainer_state: dict[str, Tensor], ranks: Ranks | None = None) -> None:
        """Fill the tensors of a trainer's state, each rank its part, for any number of writing ranks.

        Raises UserError if names or shapes differ from the saved ones.
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
        state_dict_loader.load(trainer_state, storage_reader=reader, no_dist=_no_process_group(ranks))


@dataclass(frozen=True)
class Contents:
    """The contents of a checkpoint. ``model`` can be saved by transformers, and is None on all ranks except
    the first; ``trainer_state`` is a rank's part; ``state`` must be plain JSON data."""

    step: int
    model: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase
    trainer_state: Mapping[str, Tensor]
    state: Mapping[str, Any]


def write_checkpoint(run_dir: Path, contents: Contents, ranks: Ranks) -> Path:
    """Write ``checkpoints/step-<step>`` under ``run_dir``.

    Older checkpoints are not changed until the last rename, so a valid one remains if this process dies.
    Raises UserError if the disk is full; then nothing remains of the new checkpoint. All ``ranks`` write
    together, and return when it is in place.
    """
    folder = run_dir / "checkpoints"
    target = folder / f"step-{contents.step}"
    unfinished = folder / f"{_UNFINISHED}step-{contents.step}"

    def begin() -> None:
        if contents.model is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        # The remains of a killed save or removal.
        for left in folder.glob(f"{_UNFINISHED}*"):
            _delete(left)
        unfinished.mkdir()
        _write_model(unfinished, contents, contents.model)

    try:
        ranks.agree(begin, "the model of a checkpoint")
        writer = FileSystemWriter(unfinished / _TRAINER)
        state_dict_saver.save(
            dict(contents.trainer_state),
            storage_writer=writer,
            process_group=ranks.group,
            no_dist=_no_process_group(ranks),
        )
        hashed = ranks.agree(lambda: _hashes(unfinished, ranks), "the files of a checkpoint")
        parts = ranks.gather_data(hashed, "the hashes of a checkpoint")
        ranks.agree(
            lambda: _write_manifest(unfinished, parts) if ranks.first else None,
            "the manifest of a checkpoint",
        )
    except BaseException as error:
        if ranks.first:
            shutil.rmtree(unfinished, ignore_errors=True)
        # torch wraps errors of the disk, so they are recognized by their causes.
        if _no_room(error):
            raise UserError(_full_message(target, run_dir)) from error
        raise
    if ranks.first:
        _publish(unfinished, target)
    ranks.wait("a checkpoint to be in place")
    return target


def prune_checkpoints(
    run_dir: Path,
    step: int,
    keep: int,
    also_keep: Callable[[list[int]], Collection[int]] | None = None,
    *,
    checked: bool = False,
) -> None:
    """Keep the newest ``keep`` valid checkpoints up to ``step``, and the steps that ``also_keep`` selects.

    A damaged checkpoint does not count, and stays until ``keep`` newer ones are valid. Checkpoints of later
    steps are deleted if they are invalid; a resume that skipped broken ones leaves them. checked: the
    checkpoint of ``step`` is known to be valid.
    """
    folder = run_dir / "checkpoints"
    upto = [path for path in _newest_first(folder) if _step(path) <= step]
    # A resumed run may have skipped broken checkpoints of later steps.
    later = [path for path in _newest_first(folder) if _step(path) > step]
    also = also_keep([_step(path) for path in upto]) if also_keep else ()
    known = folder / f"step-{step}" if checked else None
    old = [path for path in upto[_window(upto, keep, known) :] if _step(path) not in also]
    for path in [*old, *(path for path in later if checkpoint_error(path) is not None)]:
        _remove(path)


def _window(newest_first: list[Path], keep: int, known: Path | None) -> int:
    """Return how many of the newest checkpoints contain ``keep`` valid ones. ``known`` is valid."""
    # Reading every file takes long, so nothing is read while nothing can be removed.
    if len(newest_first) <= keep:
        return len(newest_first)
    valid = 0
    for number, path in enumerate(newest_first):
        if valid == keep:
            return number
        fault = None if path == known else checkpoint_error(path)
        if fault is None:
            valid += 1
        else:
            log.warning("%s is damaged (%s), so an older checkpoint is kept in its place", path, fault)
    return len(newest_first)


def latest_checkpoint(run_dir: Path, on_skip: Callable[[str], None] = log.warning) -> Path | None:
    """Return the newest valid checkpoint of a run; None if it has made none.

    ``on_skip`` reports each invalid one with the reason. Raises UserError if there are checkpoints but none
    is valid: the run cannot continue, and a new start must not overwrite its files.
    """
    faults: list[str] = []
    for path in _newest_first(run_dir / "checkpoints"):
        fault = checkpoint_error(path)
        if fault is None:
            for skipped in faults:
                on_skip(f"{skipped} is not a valid checkpoint; using {path}")
            return path
        faults.append(f"{path} ({fault})")
    if faults:
        raise UserError(
            f"no checkpoint of this run is valid: {', '.join(faults)}. Restore a valid one from a copy "
            f"to resume it, start again in another folder with out=FOLDER, or remove {run_dir}"
        )
    return None


def checkpoint_error(path: Path) -> str | None:
    """Return why a folder is no valid checkpoint, or None if every file matches its manifest."""
    try:
        files = json.loads((path / _MANIFEST).read_bytes())["files"]
        for name, entry in files.items():
            file = path / name
            if not file.is_file():
                return f"{name} is missing"
            # The size is compared first, since hashing reads the whole file.
            size = file.stat().st_size
            if size != entry["bytes"]:
                return f"{name} has {size} bytes instead of {entry['bytes']}"
            if file_sha256(file) != entry["sha256"]:
                return f"the contents of {name} have changed"
    except FileNotFoundError:
        return f"{_MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{_MANIFEST} cannot be read: {error}"
    whole = {_STATE, f"{_TRAINER}/.metadata"} <= set(files)
    return None if whole else "the manifest lists no training state"


def load_checkpoint(path: Path) -> Checkpoint:
    """Check a checkpoint and read its plain data. Raises UserError if it is invalid."""
    fault = checkpoint_error(path)
    if fault is not None:
        raise UserError(f"{path} is not a valid checkpoint: {fault}; resume from another step of the run")
    data = json.loads((path / _STATE).read_bytes())
    return Checkpoint(path, data["step"], data["state"])


def _write_model(folder: Path, contents: Contents, model: PreTrainedModel) -> None:
    model.save_pretrained(folder)
    contents.tokenizer.save_pretrained(folder)
    # NaN would be written as text that other JSON readers reject.
    text = json.dumps({"step": contents.step, "state": contents.state}, allow_nan=False)
    (folder / _STATE).write_text(text, encoding="utf-8")


def _hashes(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Return size and hash of this rank's share of the files. Hashing takes as long as writing, so ranks
    share it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {
        str(file.relative_to(folder)): {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
        for file in files[ranks.rank :: ranks.size]
    }


def _write_manifest(folder: Path, hashes: list[dict[str, Any]]) -> None:
    """Write the manifest, and flush all files to disk."""
    entries = {name: entry for part in hashes for name, entry in part.items()}
    text = json.dumps({"files": dict(sorted(entries.items()))}, indent=1)
    (folder / _MANIFEST).write_text(text, encoding="utf-8")
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def _no_process_group(ranks: Ranks | None) -> bool:
    """Return whether to save or load without a process group, and suppress torch's warning about it."""
    alone = ranks is None or ranks.size == 1
    # The filter is permanent: warning contexts affect all threads, and another thread writes checkpoints.
    if alone:
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
    return alone


def _no_room(error: BaseException) -> bool:
    """Return whether a disk was full on any rank. torch collects the errors of all ranks in one exception."""
    if isinstance(error, CheckpointException):
        return any(no_room(cause) or _SHORT_FILE in str(cause) for cause, _ in error.failures.values())
    return no_room(error)


def _publish(unfinished: Path, target: Path) -> None:
    """Rename into place. An older folder of the same step stays readable until then."""
    replaced = target.with_name(target.name + ".replaced")
    if target.exists():
        _remove(replaced)
        target.rename(replaced)
    unfinished.rename(target)
    # Without this, a power failure could undo the rename after the old checkpoint is deleted.
    sync(target.parent)
    _remove(replaced)


def _remove(path: Path) -> None:
    """Rename, then delete, so that a kill in between leaves nothing that looks like a checkpoint."""
    if path.exists():
        doomed = path.with_name(f"{_UNFINISHED}{path.name}")
        _delete(doomed)
        path.rename(doomed)
        _delete(doomed)


def _delete(path: Path) -> None:
    """Delete a folder, or a file that has taken its place, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _newest_first(folder: Path) -> list[Path]:
    """Return checkpoint folders, valid or not; of the same step, the replaced one comes second."""
    found = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (-_step(path), path.suffix))


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _full_message(target: Path, run_dir: Path) -> str:
    valid = next((p for p in _newest_first(run_dir / "checkpoints") if checkpoint_error(p) is None), None)
    rest = f"{valid} is still valid, and the same command resumes from it" if valid else "none exists yet"
    return (
        f"no space left to write {target}: free some space, lower `trainer.keep_checkpoints`, or give a "
        f"folder on another disk with out=FOLDER; {rest}"
    )


class CheckpointSaver:
    """Writes a run's checkpoints and removes those that are not needed.

    keep: how many of the newest to keep. also_keep: selects further steps to keep. All ``ranks`` save
    together.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        keep: int,
        ranks: Ranks | None = None,
        also_keep: Callable[[list[int]], Collection[int]] | None = None,
    ) -> None:
        self._run_dir = run_dir
        self._keep = keep
        self._ranks = ranks or Ranks()
        self._also_keep = also_keep
        self.newest: int | None = None
        """The step of the last checkpoint."""

    def save(
        self,
        step: int,
        *,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        trainer_state: Mapping[str, Tensor],
        state: Mapping[str, Any],
        dtype: torch.dtype | None = None,
    ) -> None:
        """Save a step with the model's weights in ``dtype`` (default: its own). ``state`` is plain JSON data.

        Raises UserError as :func:`whetstone.trainer.checkpoint.write_checkpoint` does.
        """
        self.newest = step
        plain = whole_model(model, dtype or model.dtype, keep=self._ranks.first)
        contents = Contents(step, plain, tokenizer, trainer_state, state)
        write_checkpoint(self._run_dir, contents, self._ranks)
        if self._ranks.first:
            # Only after the new checkpoint is in place, so that there is always a complete one.
            self.prune(step, checked=True)
        self._ranks.wait("a checkpoint to be in place")

    def prune(self, step: int, *, checked: bool = False) -> None:
        """Remove the checkpoints up to ``step`` that are not needed; see :func:`prune_checkpoints`."""
        prune_checkpoints(self._run_dir, step, self._keep, self._also_keep, checked=checked)

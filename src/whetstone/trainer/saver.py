"""Saves the checkpoints of a run, at once or in the background, and removes old ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whetstone.engine.host_copies import copy_to_host
from whetstone.trainer.checkpoint import Contents, prune_checkpoints, write_checkpoint
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.sharding import as_shard_of, local_part, whole_model


class CheckpointSaver:
    """Writes a run's checkpoints and removes those that are not needed. A context manager.

    keep: how many of the newest to keep. also_keep: selects further steps to keep. in_background: write in
    a thread, from a copy in host memory, while training continues. Only one is written at a time, with the
    same code, so a kill never leaves an incomplete checkpoint that counts as valid. All ``ranks`` save
    together and call every method together, except ``prune``.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        keep: int,
        in_background: bool = False,
        ranks: Ranks | None = None,
        also_keep: Callable[[list[int]], Collection[int]] | None = None,
    ) -> None:
        self._run_dir = run_dir
        self._keep = keep
        self._in_background = in_background
        # Collectives of a background save must not mix with those of the training steps.
        self._ranks = ranks or Ranks()
        self._save_ranks = self._ranks.new_group() if in_background else self._ranks
        self._also_keep = also_keep
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.newest: int | None = None
        """The step of the last checkpoint, which may still be in progress."""

    def __enter__(self) -> CheckpointSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        elif self._thread is not None and self._ranks.size == 1:
            # Complete a checkpoint in progress. With several ranks others may have ended, so do not wait.
            self._thread.join()

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

        Waits for the previous save, and raises its error; see
        :func:`whetstone.trainer.checkpoint.write_checkpoint`.
        """
        self.finish()
        self.newest = step
        plain = whole_model(model, dtype or model.dtype, keep=self._ranks.first, copied=self._in_background)
        if self._in_background:
            # The next step changes the live tensors while the thread still writes.
            copies = copy_to_host({name: local_part(tensor) for name, tensor in trainer_state.items()})
            trainer_state = {
                name: as_shard_of(copies[name], tensor, self._ranks) for name, tensor in trainer_state.items()
            }
        contents = Contents(step, plain, tokenizer, trainer_state, state)
        if not self._in_background:
            return self._write(contents)
        # A daemon, so that a stuck file system cannot keep the process from ending.
        self._thread = threading.Thread(
            target=self._write_in_thread, args=(contents,), name="whetstone-checkpoint", daemon=True
        )
        return self._thread.start()

    def check(self) -> None:
        """Raise the error of a background save that has ended."""
        if self._thread is not None and not self._thread.is_alive():
            self.finish()

    def finish(self) -> None:
        """Wait for the current save, and raise its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def prune(self, step: int, *, checked: bool = False) -> None:
        """Remove the checkpoints up to ``step`` that are not needed; see :func:`prune_checkpoints`."""
        prune_checkpoints(self._run_dir, step, self._keep, self._also_keep, checked=checked)

    def _write_in_thread(self, contents: Contents) -> None:
        try:
            self._write(contents)
        except BaseException as error:
            self._error = error

    def _write(self, contents: Contents) -> None:
        write_checkpoint(self._run_dir, contents, self._save_ranks)
        if self._ranks.first:
            # Only after the new checkpoint is in place, so that there is always a complete one.
            self.prune(contents.step, checked=True)
        self._save_ranks.wait("a checkpoint to be in place")

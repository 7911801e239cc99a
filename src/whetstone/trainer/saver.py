"""Checkpoints as a run makes them: at once, or beside the steps that follow, and no more than are wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whetstone.trainer.checkpoint import Contents, prune_checkpoints, write_checkpoint
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.sharding import like, local, whole_model


class CheckpointSaver:
    """Writes a run's checkpoints and removes those that are no longer wanted. A context manager.

    keep: how many of the newest stay. worth: of the steps that have one, those whose checkpoint stays
    besides. placed: called in whichever thread writes, when a new one is in place and none is removed yet.
    beside: write in a thread, from a copy in the host's memory, while the caller goes on. One is written at
    a time, and by the same code: whatever is killed, a torn one is never taken for whole. All ``ranks`` make
    one together, and call every method together.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        keep: int,
        beside: bool = False,
        ranks: Ranks | None = None,
        worth: Callable[[list[int]], Collection[int]] | None = None,
        placed: Callable[[], None] = lambda: None,
    ) -> None:
        self._run_dir = run_dir
        self._keep = keep
        self._beside = beside
        # What is written beside the steps must not mix with what the ranks say to each other in them.
        self._ranks = ranks or Ranks()
        self._writers = self._ranks.apart() if beside else self._ranks
        self._worth = worth
        self._placed = placed
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.newest: int | None = None
        """The step whose checkpoint was made last, or is being made."""

    def __enter__(self) -> CheckpointSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        elif self._thread is not None and self._ranks.size == 1:
            # What is half written may as well be whole. Of several ranks others may be gone: not waited for.
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
        """Save a step, the model's weights in ``dtype``, its own unless given. ``state`` is plain JSON data.

        Waits for the one that is under way, and raises what went wrong with it; see
        :func:`whetstone.trainer.checkpoint.write_checkpoint`.
        """
        self.finish()
        self.newest = step
        plain = whole_model(model, dtype or model.dtype, keep=self._ranks.first, copied=self._beside)
        if self._beside:
            trainer_state = {
                name: like(local(tensor).to("cpu", copy=True), tensor, self._ranks)
                for name, tensor in trainer_state.items()
            }
        contents = Contents(step, plain, tokenizer, trainer_state, state)
        if not self._beside:
            return self._write(contents)
        self._thread = threading.Thread(
            target=self._write_beside, args=(contents,), name="whetstone-checkpoint", daemon=True
        )
        return self._thread.start()

    def look(self) -> None:
        """Raise what went wrong with a checkpoint that was written beside, if it has ended."""
        if self._thread is not None and not self._thread.is_alive():
            self.finish()

    def finish(self) -> None:
        """Wait for the checkpoint under way, and raise what went wrong with it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write_beside(self, contents: Contents) -> None:
        try:
            self._write(contents)
        except BaseException as error:
            self._error = error

    def _write(self, contents: Contents) -> None:
        write_checkpoint(self._run_dir, contents, self._writers)
        if self._ranks.first:
            self._placed()
            prune_checkpoints(self._run_dir, contents.step, self._keep, self._worth)
        self._writers.wait("a checkpoint to be in place")

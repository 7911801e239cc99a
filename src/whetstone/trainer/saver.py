"""Saves the checkpoints of a run, and removes old ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whetstone.trainer.checkpoint import Contents, prune_checkpoints, write_checkpoint
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.sharding import whole_model


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

"""The embedded engine as the writer of an evaluation's replies.

The one module of this folder that loads torch; it is imported when all else is checked.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import torch

from whetstone.engine.factory import build_engine
from whetstone.engine.loading import load_model
from whetstone.engine.memory import keep_freed_memory
from whetstone.engine.settings import EngineSection
from whetstone.evaluate.manifest import version
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.replies.writer import Weights
from whetstone.workflow.replies import EngineReplies
from whetstone.workflow.settings import WorkflowSection

_LOOKED_AT = 256  # values of each parameter


class EmbeddedModel:
    """A model loaded into this process. Raises UserError for one that cannot be loaded."""

    def __init__(self, weights: Weights) -> None:
        keep_freed_memory()
        torch.set_num_threads(weights.threads or os.cpu_count() or 1)
        loaded = load_model(
            weights.source, revision=weights.revision, dtype=weights.dtype, device=weights.device
        )
        self._engine = build_engine(EngineSection(), lambda: loaded.model, loaded.tokenizer)
        self._tokenizer = loaded.tokenizer
        self.manifest: dict[str, Any] = {
            "source": loaded.source,
            "revision": weights.revision,
            "fingerprint": _fingerprint(loaded.model),
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "device": str(loaded.model.device),
            "threads": torch.get_num_threads(),
            "torch": version("torch"),
            "transformers": version("transformers"),
        }

    def writer(self, plan: Plan, settings: WorkflowSection) -> EngineWriter:
        """Who writes the replies of one evaluation."""
        most = settings.max_prompt_tokens
        return EngineWriter(EngineReplies(self._engine, self._tokenizer, plan, max_prompt_tokens=most))

    async def close(self) -> None:
        """Free the model."""
        await self._engine.close()


def _fingerprint(model: torch.nn.Module) -> str:
    """Tells one set of weights from another by values spread over every parameter."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        some = flat[:: max(1, flat.numel() // _LOOKED_AT)][:_LOOKED_AT].float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)} ".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]

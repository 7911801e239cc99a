"""The embedded engine as the writer of an evaluation's replies.

This is the only module of the folder that imports torch. It is imported after all other checks.
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
from whetstone.environments.formats.family import family_of, use_chat_settings
from whetstone.environments.replies import EngineReplies
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.manifest import version
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.replies.settings import ModelWeights

# The values of each parameter that the digest reads.
_LOOKED_AT = 256


class EmbeddedModel:
    """A model that is loaded in this process. Raises UserError for one that cannot be loaded."""

    def __init__(self, weights: ModelWeights) -> None:
        keep_freed_memory()
        torch.set_num_threads(weights.threads or os.cpu_count() or 1)
        loaded = load_model(
            weights.source, revision=weights.revision, dtype=weights.dtype, device=weights.device
        )
        use_chat_settings(loaded.tokenizer, weights.format, weights.template_arguments)
        self._engine = build_engine(EngineSection(), lambda: loaded.model, loaded.tokenizer)
        self._tokenizer = loaded.tokenizer
        self.manifest: dict[str, Any] = {
            "source": loaded.source,
            "revision": weights.revision,
            "fingerprint": _fingerprint(loaded.model),
            "format": family_of(loaded.tokenizer).name,
            "template_arguments": dict(weights.template_arguments),
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "device": str(loaded.model.device),
            "threads": torch.get_num_threads(),
            "torch": version("torch"),
            "transformers": version("transformers"),
        }

    def writer(self, plan: SamplingPlan, settings: EnvironmentSection) -> EngineWriter:
        """Return the writer of one evaluation."""
        most = settings.max_prompt_tokens
        return EngineWriter(EngineReplies(self._engine, self._tokenizer, plan, max_prompt_tokens=most))

    async def close(self) -> None:
        """Free the model."""
        await self._engine.close()


def _fingerprint(model: torch.nn.Module) -> str:
    """Return a digest of values of every parameter, which distinguishes sets of weights."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        # A digest of all values would read the whole model again. Training changes values everywhere.
        some = flat[:: max(1, flat.numel() // _LOOKED_AT)][:_LOOKED_AT].float().cpu()
        digest.update(f"{name} {tuple(parameter.shape)} ".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]

"""Which model, and what it computes in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from whetstone.settings import Count, Natural, NonEmpty, Section

SERVERS = frozenset({"vllm", "sglang"})
"""Engines with weights in processes of their own; what they are given belongs in the host's memory."""


SMALLEST_VOCABULARY = 256 + 2
"""Every byte, the end of a reply, and padding."""


class ScratchModel(Section):
    """A Llama-shaped model with fresh weights and a byte-level BPE tokenizer of the warm-up texts."""

    hidden_size: Count = 192
    layers: Count = 4
    heads: Count = 6
    kv_heads: Count = 6
    intermediate_size: Count = 512
    vocab_size: Count = 512
    max_positions: Count = 512

    @model_validator(mode="after")
    def _sizes_fit(self) -> ScratchModel:
        if self.vocab_size < SMALLEST_VOCABULARY:
            raise ValueError(
                f"`vocab_size` is {self.vocab_size}; a byte-level vocabulary needs at least "
                f"{SMALLEST_VOCABULARY}"
            )
        if self.hidden_size % (2 * self.heads):
            raise ValueError(
                f"`hidden_size` ({self.hidden_size}) has to be a multiple of twice `heads` ({self.heads}), "
                "because rotary positions turn pairs"
            )
        if self.heads % self.kv_heads:
            raise ValueError(f"`heads` ({self.heads}) has to be a multiple of `kv_heads` ({self.kv_heads})")
        return self


def _options(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    if info.data.get("kind") == "torch":
        TorchOptions.model_validate(value, context=info.context)
    return value


class TorchOptions(Section):
    """``engine.options`` of the kind ``torch``; see ``engine/torch_engine.py``."""

    max_batch: Count = 256
    max_context: Count | None = None
    cache_mb: Count | None = None


class EngineSection(Section):
    """Who generates: ``torch``, the embedded engine; ``vllm`` or ``sglang``, a server; or
    ``package.module:callable`` of one's own.

    ``options`` are the engine's own keywords (``torch``: ``max_batch``, ``max_context``, ``cache_mb``; the
    servers': ``engine/served/settings.py``). ``placement: shared`` is for a server that computes on the
    trainer's devices: while the trainer works it sleeps, and keeps none of their memory.
    """

    kind: NonEmpty = "torch"
    placement: Literal["apart", "shared"] = "apart"
    options: Annotated[dict[str, Any], AfterValidator(_options)] = Field(default_factory=dict[str, Any])

    @model_validator(mode="after")
    def _placed(self) -> EngineSection:
        if self.placement == "shared" and self.kind not in SERVERS:
            raise ValueError(
                f"`engine.placement: shared` is for {' and '.join(sorted(SERVERS))}; `{self.kind}` is in the "
                "trainer's process, and shares its devices anyway"
            )
        return self


class ModelSection(Section):
    """The model to train: a folder, a GGUF file or a hub id in ``path``, or ``scratch``.

    ``dtype`` is what forward, backward and generation compute in; ``auto`` is bfloat16 where the device
    computes it natively and float32 elsewhere. A run keeps the dtype that it began with, and the optimizer
    always keeps fp32 master weights. ``device`` ``auto`` takes the GPU when there is one.
    """

    path: str | None = None
    revision: str | None = None
    scratch: ScratchModel | None = None
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    device: str = "auto"
    threads: Natural = 0

    @model_validator(mode="after")
    def _one_source(self) -> ModelSection:
        if (self.path is None) == (self.scratch is None):
            raise ValueError("give exactly one of `path` and `scratch`")
        return self

"""Settings of the model and of the engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from whetstone.core.settings import Count, Natural, NonEmpty, Positive, Section
from whetstone.engine.served.settings import ServedOptions

# Engines whose weights are in separate processes. Models passed to them belong in host memory.
SERVERS = frozenset({"vllm", "sglang"})
# The kind that a run replaces by that of another engine (``run/auto.py``).
AUTO = "auto"


# Every byte, the end of a reply, and padding.
SMALLEST_VOCABULARY = 256 + 2


class ScratchModel(Section):
    """A Llama-shaped model with new weights and a byte-level BPE tokenizer of the warm-up texts.

    hidden_size: the width of the hidden states, a multiple of twice ``heads``.
    layers: the number of decoder layers.
    heads: the number of attention heads.
    kv_heads: the number of heads of keys and values, which divides ``heads``; fewer need a smaller cache.
    intermediate_size: the width of the feed-forward layers.
    vocab_size: the number of tokens of the tokenizer, at least 258 for all bytes and two marks.
    max_positions: the most tokens of prompt and reply together; raise it for long replies.
    """

    hidden_size: Count = 192
    layers: Count = 4
    heads: Count = 6
    kv_heads: Count = 6
    intermediate_size: Count = 512
    vocab_size: Count = 512
    max_positions: Count = 512

    @model_validator(mode="after")
    def _check_sizes(self) -> ScratchModel:
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
    kind = info.data.get("kind")
    if kind == "torch":
        TorchOptions.model_validate(value, context=info.context)
    elif kind == AUTO:
        # Only one of the two engines will get its options, but a mistake is reported in any case.
        embedded = {key: value[key] for key in value.keys() & TorchOptions.model_fields.keys()}
        TorchOptions.model_validate(embedded, context=info.context)
        rest = {key: each for key, each in value.items() if key not in embedded or key == "max_context"}
        if ServedOptions.model_validate(rest, context=info.context).url is not None:
            raise ValueError("`url` names a server: set `engine.kind` to `vllm` or `sglang`")
    return value


class TorchOptions(Section):
    """``engine.options`` of the kind ``torch``; see ``engine/torch_engine.py``.

    max_batch: the most replies that are sampled at once; lower it to save memory.
    max_context: the most tokens of prompt and reply together; null is the model's maximum.
    cache_mb: MiB for keys and values of running replies; null is a quarter of the device's memory. Set it on
        a machine that other processes share.
    """

    max_batch: Count = 256
    max_context: Count | None = None
    cache_mb: Count | None = None


class EngineSection(Section):
    """The engine that samples replies. A run keeps its initial engine.

    kind: ``torch``, the embedded engine; ``vllm`` or ``sglang``, a server; ``auto``, which is ``vllm`` where
        CUDA and the package exist, and ``torch`` otherwise; or your own ``package.module:callable``.
    placement: ``shared`` is for a server on the trainer's devices, which sleeps while the trainer works, and
        releases their memory. The embedded engine that ``auto`` may choose ignores it.
    options: the engine's keywords (``torch``: ``max_batch``, ``max_context``, ``cache_mb``; servers: see
        docs/scaling.md; ``auto``: of both, and each engine gets its own).
    """

    kind: NonEmpty = "torch"
    placement: Literal["apart", "shared"] = "apart"
    options: Annotated[dict[str, Any], AfterValidator(_options)] = Field(default_factory=dict[str, Any])

    @model_validator(mode="after")
    def _check_placement(self) -> EngineSection:
        if self.placement == "shared" and self.kind not in SERVERS | {AUTO}:
            raise ValueError(
                f"`engine.placement: shared` is for {' and '.join(sorted(SERVERS))}; `{self.kind}` runs in "
                "the trainer's process and always shares its devices; set it to `apart`"
            )
        return self


class MachineSection(Section):
    """The machine that a recipe is sized for, whose memory ``--dry-run`` plans. A run does not read it.

    devices: of all its nodes; without ``flow``, torchrun starts a rank for each. memory_gb: of each device,
        in 10^9 bytes.
    """

    devices: Count = 1
    memory_gb: Positive


class ModelSection(Section):
    """The model to train, in ``path`` or from ``scratch``. The optimizer always keeps fp32 master weights.

    path: a folder, a GGUF file or a hub id; null with ``scratch``.
    revision: the branch, tag or commit of a hub id; null is the newest.
    scratch: the sizes of a new model, instead of ``path``.
    dtype: the compute type of forward, backward and generation; ``auto`` is bfloat16 if the device computes
        it natively, and float32 otherwise. A run keeps its initial dtype.
    device: a torch device such as ``cuda:1``; ``auto`` uses the GPU if there is one.
    threads: threads of torch; 0 is one for each core. Lower it on a machine that other processes share.
    format: how the model writes thinking and tool calls, as a name in docs/formats.md; empty: the format of
        its chat template. Set it for a model whose template shows none of its marks.
    template_arguments: what the model's chat template gets in addition to the messages, such as
        ``{enable_thinking: false}``, wherever prompts are made.
    """

    path: str | None = None
    revision: str | None = None
    scratch: ScratchModel | None = None
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    device: str = "auto"
    threads: Natural = 0
    format: str = ""
    template_arguments: dict[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="after")
    def _check_source(self) -> ModelSection:
        if (self.path is None) == (self.scratch is None):
            raise ValueError(
                "give exactly one of `path` and `scratch`; null removes a key that a recipe sets, such as "
                "`model.scratch=null`"
            )
        return self

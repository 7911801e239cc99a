"""The supported architectures, and the constraints of their rotary positions on a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whetstone.core.errors import UserError

_ATTENTION_KINDS = {"full_attention", "sliding_attention"}

# Families of `TESTED_FAMILIES` with their own attention code, which only support padded rows.
OWN_ATTENTION = frozenset({"gptj"})

# The values of `model_type` that `tests/families` tests.
TESTED_FAMILIES = OWN_ATTENTION | {
    *("llama", "mistral", "ministral", "mixtral", "smollm3", "seed_oss", "hunyuan_v1_dense", "ernie4_5"),
    *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
    *("gemma", "gemma2", "gemma3_text", "gemma4_text", "gpt2", "gpt_neox", "gpt_oss", "phi", "phi3"),
    *("deepseek_v2", "deepseek_v3", "glm", "glm4", "glm4_moe", "granite", "granitemoe", "starcoder2"),
    *("cohere", "cohere2", "olmo", "olmo2", "olmo3", "exaone4", "stablelm"),
}


@dataclass(frozen=True)
class RopeLimits:
    """The lengths at which a model's rotary frequencies change.

    switch: `longrope` (arXiv 2402.13753) uses one set of frequencies for sequences up to this many tokens,
        and another for longer ones, including their beginning. transformers selects the set by the longest
        row of a batch, so rows of both kinds must not share a batch.
    max_tokens: `dynamic` uses other frequencies for every length above this one, so no two tokens of a longer
        sequence are predicted with the same frequencies. Such sequences can be neither cached nor trained in
        one pass.
    """

    switch: int | None = None
    max_tokens: int | None = None

    def is_long(self, tokens: int) -> bool:
        """Return whether a sequence of this length uses the second set of frequencies."""
        return self.switch is not None and tokens > self.switch

    def columns(self, past: int) -> int:
        """Return to how many columns ``past`` tokens before the newest one must be padded, so that the model
        selects their set."""
        return past if self.switch is None or past < self.switch else max(past, self.switch + 1)


def check_architecture(config: Any) -> None:
    """Raise UserError unless models of ``config`` are known to be served and trained correctly.

    ``tests/families`` tests a family: generation from a shared cache gives the tokens of transformers' own,
    and packed rows give the log-probs and gradients of each sequence alone. Layers with another kind of state
    (Mamba, RWKV) or chunked attention (Llama 4) do not work with this cache in any family.
    """
    kind = str(config.model_type)
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ()) - _ATTENTION_KINDS
    if kind in TESTED_FAMILIES and not layers:
        return
    found = f"layers of kind {', '.join(sorted(layers))}" if layers else "an untested family"
    raise UserError(
        f"{kind}: {found}; the embedded engine and the trainer support models with full or sliding-window "
        f"attention of these families: {', '.join(sorted(TESTED_FAMILIES))}"
    )


def rope_limits(model: Any) -> RopeLimits:
    """Return the limits of ``model``'s rotary positions; empty if they do not depend on the length.

    Raises UserError if layers switch at different lengths.
    """
    config = model.config.get_text_config()
    switches = {
        int(rope.get("original_max_position_embeddings") or config.max_position_embeddings)
        for rope in _ropes(config)
        if rope.get("rope_type") == "longrope"
    }
    if len(switches) > 1:
        raise UserError(
            f"{config.model_type}: layers change their rope frequencies at different lengths "
            f"({', '.join(map(str, sorted(switches)))}); only one such length is supported"
        )
    dynamic = any("dynamic" in str(rope.get("rope_type")) for rope in _ropes(config))
    return RopeLimits(
        switch=next(iter(switches), None), max_tokens=int(config.max_position_embeddings) if dynamic else None
    )


def check_length(limits: RopeLimits, tokens: int, remedy: str) -> None:
    """Raise UserError, ending in ``remedy``, if a sequence is longer than rope of type `dynamic` allows."""
    if limits.max_tokens is not None and tokens > limits.max_tokens:
        raise UserError(
            f"a sequence of {tokens} tokens: rope of type `dynamic` has other frequencies for every length "
            f"beyond {limits.max_tokens}, which can neither be cached nor trained in one pass; {remedy}"
        )


def _ropes(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rope parameters of all layers: one set, or one per layer type."""
    parameters: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    if "rope_type" in parameters:
        yield parameters
    else:
        yield from (p for p in parameters.values() if isinstance(p, Mapping))

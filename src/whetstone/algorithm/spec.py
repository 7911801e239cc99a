"""An algorithm as one specification: which advantage, clip, aggregation and penalties.

Torch-free, so that a recipe can name and override it. The mathematics is in ``advantage.py`` and
``loss.py``; this file only says which parts a preset uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from whetstone.errors import UserError, did_you_mean


@dataclass(frozen=True)
class AlgorithmSpec:
    """One policy-gradient algorithm.

    advantage: ``group_std`` is (R - mean) / (std + 1e-6) with the unbiased std; ``group_mean`` is R - mean.
    clip_low, clip_high: the ratio p / p_old is clipped to [1 - clip_low, 1 + clip_high].
    dual_clip: for negative advantages the loss is bounded by -dual_clip * A; None switches it off.
    aggregation: ``token_mean`` divides by the tokens of the whole mini-batch; ``sequence_mean`` averages
        token means; ``fixed_length`` divides by samples * max_tokens.
    kl_coef: weight of the k3 estimate of KL(p || p_ref) against the starting weights; 0 loads no reference.
    drop_zero_variance: groups whose rewards are all equal are dropped, and counted.
    refill_rounds: dropped groups are replaced by fresh prompts for at most this many extra rounds.
    overlong_buffer: DAPO's soft length penalty over the last so many tokens before max_tokens; 0 is off.
    mask_truncated: replies cut at max_tokens carry no loss (their reward still counts in the baseline).
    """

    advantage: Literal["group_std", "group_mean"]
    clip_low: float
    clip_high: float
    aggregation: Literal["token_mean", "sequence_mean", "fixed_length"]
    dual_clip: float | None = None
    kl_coef: float = 0.0
    drop_zero_variance: bool = True
    refill_rounds: int = 0
    overlong_buffer: int = 0
    mask_truncated: bool = False


PRESETS: dict[str, AlgorithmSpec] = {
    # DeepSeekMath, arXiv 2402.03300.
    "grpo": AlgorithmSpec("group_std", 0.2, 0.2, "sequence_mean", kl_coef=0.001),
    # "Understanding R1-Zero-like training", arXiv 2503.20783: no std, no length bias, no KL.
    "dr_grpo": AlgorithmSpec("group_mean", 0.2, 0.2, "fixed_length"),
    # DAPO, arXiv 2503.14476: clip-higher, global token mean, dynamic sampling, soft length penalty.
    "dapo": AlgorithmSpec("group_std", 0.2, 0.28, "token_mean", refill_rounds=3, overlong_buffer=4096),
}


def resolve(preset: str, overrides: dict[str, Any]) -> AlgorithmSpec:
    """Return the named preset with ``overrides`` applied (None values mean "as the preset has it")."""
    if preset not in PRESETS:
        raise UserError(
            f"unknown algorithm preset `{preset}`{did_you_mean(preset, PRESETS)}"
            f" (known: {', '.join(PRESETS)})"
        )
    return replace(PRESETS[preset], **{k: v for k, v in overrides.items() if v is not None})

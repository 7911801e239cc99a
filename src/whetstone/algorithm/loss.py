"""Policy-gradient losses, token by token, and the weights that turn them into one number.

Pure functions on tensors, minimised. The loss of a mini-batch is ``sum_t weight_t * loss_t``, where
the weights are computed once from the whole mini-batch. Because every token brings its own share of
the global denominator, gradients may be summed over any split into micro-batches or ranks.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Bound of log-ratios before exp, where a ratio means nothing any more but infinity would spoil the sum."""


def token_weights(
    lengths: Tensor, aggregation: Literal["token_mean", "sequence_mean", "fixed_length"], max_tokens: int
) -> Tensor:
    """The weight of each token of sample i, for all samples of a mini-batch that carry loss.

    lengths: [N] tokens per sample, all positive; leave out samples that carry no loss, for they belong
    in no denominator. max_tokens: the longest reply that may be sampled. Returns [N], float64:

    - ``token_mean``: 1 / all tokens (DAPO, arXiv 2503.14476);
    - ``sequence_mean``: 1 / (N * length_i), the mean of token means (GRPO, arXiv 2402.03300);
    - ``fixed_length``: 1 / (N * max_tokens) (Dr. GRPO, arXiv 2503.20783).
    """
    count = lengths.to(torch.float64)
    if aggregation == "token_mean":
        return torch.ones_like(count) / count.sum()
    if aggregation == "sequence_mean":
        return 1.0 / (len(count) * count)
    return torch.ones_like(count) / (len(count) * max_tokens)


def clipped_surrogate(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO's clipped loss (arXiv 1707.06347) with separate bounds (clip-higher, arXiv 2503.14476).

    All tensors [T]; gradients flow through ``log_probs`` only. With r = p / p_old the loss is
    ``max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A)``; for A < 0 ``dual_clip`` bounds it by
    ``-dual_clip * A`` (arXiv 1912.09729). Returns the loss and a bool tensor: where a bound holds, so
    that the token has no gradient.
    """
    ratio = probability_ratio(log_probs, old_log_probs)
    free = -ratio * advantages
    bounded = -ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages
    loss = torch.maximum(free, bounded)
    clipped = bounded > free
    if dual_clip is not None:
        ceiling = -dual_clip * advantages
        over = (advantages < 0) & (loss > ceiling)
        loss = torch.where(over, ceiling, loss)
        clipped = clipped | over
    return loss, clipped.detach()


def probability_ratio(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """p / p_old for natural logs, [T]; log-ratios are bounded to ±20."""
    return torch.exp((log_probs - old_log_probs.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


def k3_divergence(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """The k3 estimate of KL(p || p_ref) for tokens drawn from p, [T], never negative.

    ``e^d - d - 1`` with d = log p_ref - log p, bounded to ±20 (Schulman, "Approximating KL divergence",
    2020; used in arXiv 2402.03300, equation 4).
    """
    d = (reference_log_probs.detach() - log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.expm1(d) - d

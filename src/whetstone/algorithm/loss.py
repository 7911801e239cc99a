"""Policy-gradient losses, token by token, and the weights that turn them into one number.

Pure functions on tensors, minimised. The loss of a mini-batch is ``sum_t weight_t * loss_t``, where
the weights are computed once from the whole mini-batch. Because every token brings its own share of
the global denominator, gradients may be summed over any split into micro-batches or ranks.
The losses themselves are in ``presets/``; torch is imported for its types only, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "fixed_length"]
Divergence = Literal["k1", "k2", "k3"]

# Bound of log-ratios before exp, where a ratio means nothing any more but infinity would spoil the sum.
MAX_LOG_RATIO = 20.0


def token_weights(lengths: Tensor, aggregation: Aggregation, max_tokens: int) -> Tensor:
    """The weight of each token of sample i, for all samples of a mini-batch that carry loss.

    lengths: [N] tokens per sample, all positive; leave out samples that carry no loss, for they belong
    in no denominator. max_tokens: the longest reply that may be sampled. Returns [N], float64:

    - ``token_mean``: 1 / all tokens (DAPO, arXiv 2503.14476);
    - ``sequence_mean``: 1 / (N * length_i), the mean of token means (GRPO, arXiv 2402.03300);
    - ``fixed_length``: 1 / (N * max_tokens) (Dr. GRPO, arXiv 2503.20783).
    """
    count = lengths.double()
    if aggregation == "token_mean":
        return count.new_ones(len(count)) / count.sum()
    if aggregation == "sequence_mean":
        return 1.0 / (len(count) * count)
    return count.new_ones(len(count)) / (len(count) * max_tokens)


def probability_ratio(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """p / p_old for natural logs, [T]; log-ratios are bounded to ±20."""
    return bounded_exp(log_probs - old_log_probs.detach())


def bounded_exp(log_ratio: Tensor) -> Tensor:
    """A ratio from its logarithm, which is bounded to ±20."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def divergence(log_probs: Tensor, reference_log_probs: Tensor, estimate: Divergence) -> Tensor:
    """An estimate of KL(p || p_ref) for tokens drawn from p, [T]; gradients flow through ``log_probs``.

    With d = log p_ref - log p, bounded to ±20 (Schulman, "Approximating KL divergence", 2020): k1 is -d, k2
    is d^2 / 2, k3 is e^d - d - 1 (arXiv 2402.03300, equation 4), which is never negative. As part of a
    *loss*, k1 has a gradient whose mean is zero, k2 that of KL(p || p_ref), and k3 that of KL(p_ref || p).
    """
    d = (reference_log_probs.detach() - log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if estimate == "k1":
        return -d
    return 0.5 * d.square() if estimate == "k2" else d.expm1() - d

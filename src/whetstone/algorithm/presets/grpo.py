"""GRPO (DeepSeekMath, arXiv 2402.03300), and the clipped loss that the others here share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from whetstone.algorithm.algorithm import Algorithm, Coefficient, Losses, LossInputs, token_by_token
from whetstone.algorithm.loss import probability_ratio
from whetstone.core.settings import NonNegative, Share

if TYPE_CHECKING:
    from torch import Tensor


class GRPO(Algorithm):
    """Advantages within the group, each token's ratio clipped, the mean of token means, a small KL penalty.

    clip_low, clip_high: the ratio p / p_old is clipped to [1 - clip_low, 1 + clip_high]; null is no bound.
    dual_clip: for negative advantages the loss is bounded by -dual_clip * A; null switches it off.
    """

    kl_coef: Coefficient = 0.001
    clip_low: Share | None = 0.2
    clip_high: NonNegative | None = 0.2
    dual_clip: Annotated[float, Field(gt=1)] | None = None

    @token_by_token
    def loss(self, inputs: LossInputs) -> Losses:
        """See :func:`clipped_surrogate`."""
        return self._clipped(probability_ratio(inputs.log_probs, inputs.old), inputs.advantages)

    def _clipped(self, ratio: Tensor, advantages: Tensor) -> Losses:
        losses, clipped = clipped_surrogate(
            ratio,
            advantages,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
        )
        return Losses(losses, {"clip_fraction": clipped})


def clipped_surrogate(
    ratio: Tensor,
    advantages: Tensor,
    *,
    clip_low: float | None,
    clip_high: float | None,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO's clipped loss (arXiv 1707.06347) with separate bounds (clip-higher, arXiv 2503.14476).

    All tensors [T]; gradients flow through ``ratio`` only. With r = p / p_old the loss is
    ``max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A)``; for A < 0 ``dual_clip`` bounds it by
    ``-dual_clip * A`` (arXiv 1912.09729). Returns the loss and a bool tensor: where a bound holds, so
    that the token has no gradient.
    """
    free = -ratio * advantages
    # No ratio is negative or infinite, so these bounds are none.
    low = 0.0 if clip_low is None else 1.0 - clip_low
    high = math.inf if clip_high is None else 1.0 + clip_high
    bounded = -ratio.clamp(low, high) * advantages
    clipped = bounded > free
    # A ratio at a bound is free. `maximum` and, from torch 2.14 on, `clamp` halve or drop its gradient.
    loss = bounded.where(clipped, free)
    if dual_clip is not None:
        ceiling = -dual_clip * advantages
        over = (advantages < 0) & (loss > ceiling)
        loss = ceiling.where(over, loss)
        clipped = clipped | over
    return loss, clipped.detach()

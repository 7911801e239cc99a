"""M2PO (arXiv 2510.01161): a budget for the second moment of the log-ratio instead of a clip.

For replies of stale weights. With d = log p / p_engine, the tokens that a step would push further away are
those with A > 0, d > 0 or A < 0, d < 0. The mean of d^2 over them, in the whole mini-batch, is reduced below
the budget by taking the largest out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from whetstone.algorithm.algorithm import Aggregation, Algorithm, Losses, LossInputs, token_by_token
from whetstone.algorithm.loss import MAX_LOG_RATIO, bounded_exp, probability_ratio
from whetstone.core.settings import Positive

if TYPE_CHECKING:
    from torch import Tensor


_WINSOR_FLOORS = (0.7, 1.5)
_ASTRAFLOW_LIMITS = (0.05, 21.0)


class M2PO(Algorithm):
    """-r A with r = p / p_engine, and nothing for the tokens that are out; there is no other clip.

    budget: the largest mean of d^2.
    variant: ``algorithm_1`` is the paper's. ``winsor`` is its authors' code: |d| above some T counts as T,
        with T where the mean meets the budget; r is clipped as in PPO to [e^-T, e^T], never closer than
        [0.7, 1.5]. ``astraflow``: T is the largest |d| that Algorithm 1 keeps; r is clipped as in PPO to
        [e^-T, e^T], never further than [0.05, 21].
    """

    corrects_itself: ClassVar[bool] = True

    aggregation: Aggregation = "token_mean"
    budget: Positive = 0.04
    variant: Literal["algorithm_1", "winsor", "astraflow"] = "algorithm_1"

    def prepare(self, minibatch: LossInputs) -> Tensor:
        """[T]: the ratio that a token is held at, infinite where it is free."""
        log_ratio = minibatch.log_probs - minibatch.engine
        advantages = minibatch.advantages
        outward = (advantages * log_ratio) > 0
        squares = log_ratio[outward].double().square()
        free = log_ratio.new_full(log_ratio.shape, math.inf)
        if self.variant == "algorithm_1":
            out = outward & (log_ratio.double().square() >= first_removed(squares, self.budget))
            return free.masked_fill(out, 0.0)
        low, high = self._bounds(squares)
        ratio = bounded_exp(log_ratio)
        free = free.masked_fill((advantages > 0) & (ratio > high), high)
        return free.masked_fill((advantages < 0) & (ratio < low), low)

    @token_by_token
    def loss(self, inputs: LossInputs) -> Losses:
        """The unclipped loss of the free tokens; ``clip_fraction`` is the share of the others."""
        if inputs.prepared is None:
            raise RuntimeError("m2po needs what prepare() makes of the whole mini-batch")
        held = inputs.prepared.isfinite()
        ratio = inputs.prepared.where(held, probability_ratio(inputs.log_probs, inputs.engine))
        return Losses(-ratio * inputs.advantages, {"clip_fraction": held})

    def _bounds(self, squares: Tensor) -> tuple[float, float]:
        if self.variant == "winsor":
            # No ratio is beyond this, so an infinite cap is none.
            cap = min(math.sqrt(winsor_cap(squares, self.budget)), MAX_LOG_RATIO)
            return min(math.exp(-cap), _WINSOR_FLOORS[0]), max(math.exp(cap), _WINSOR_FLOORS[1])
        limit = first_removed(squares, self.budget)
        kept = squares[squares < limit]
        if len(kept) == len(squares):
            return _ASTRAFLOW_LIMITS
        cap = min(math.sqrt(float(kept.max())), MAX_LOG_RATIO) if len(kept) else 0.0
        return max(math.exp(-cap), _ASTRAFLOW_LIMITS[0]), min(math.exp(cap), _ASTRAFLOW_LIMITS[1])


def first_removed(squares: Tensor, budget: float) -> float:
    """The smallest of the [n] values that has to go so that the mean of the rest is at most ``budget``.

    The largest go first, equal ones together. Infinity where none has to.
    """
    ascending = squares.sort().values
    count = ascending.new_ones(len(ascending)).cumsum(0)
    within = int((ascending.cumsum(0) <= budget * count).sum())
    return float(ascending[within]) if within < len(ascending) else math.inf


def winsor_cap(squares: Tensor, budget: float) -> float:
    """The cap at which the capped [n] values have the mean ``budget``; infinity where theirs is below."""
    ascending = squares.sort().values
    total = budget * len(ascending)
    if len(ascending) == 0 or float(ascending.sum()) <= total:
        return math.inf
    below = ascending.cumsum(0) - ascending
    above = len(ascending) - ascending.new_ones(len(ascending)).cumsum(0) + 1
    # Capping at the k-th value gives a sum of below + above * value; the first that is too large is capped.
    first = int((below + above * ascending <= total).sum())
    return float((total - below[first]) / above[first])

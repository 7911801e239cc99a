"""CISPO (MiniMax-M1, arXiv 2506.13585): bounded weights for all tokens instead of a clip that drops some."""

from __future__ import annotations

from whetstone.algorithm.algorithm import Aggregation, Algorithm, Losses, LossInputs, token_by_token
from whetstone.algorithm.loss import probability_ratio
from whetstone.core.settings import Positive


class CISPO(Algorithm):
    """-min(r, ratio_cap) * A * log p, without a gradient through the ratio, and without a lower bound.

    ratio_cap: the largest r = p / p_old a token counts with; null is no bound.
    """

    aggregation: Aggregation = "token_mean"
    ratio_cap: Positive | None = 5.0

    @token_by_token
    def loss(self, inputs: LossInputs) -> Losses:
        """Every token keeps its gradient; ``clip_fraction`` is the share of bounded weights."""
        ratio = probability_ratio(inputs.log_probs, inputs.old).detach()
        cap = float("inf") if self.ratio_cap is None else self.ratio_cap
        losses = -ratio.clamp(max=cap) * inputs.advantages * inputs.log_probs
        return Losses(losses, {"clip_fraction": ratio > cap})

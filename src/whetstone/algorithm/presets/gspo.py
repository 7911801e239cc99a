"""GSPO: one ratio for a whole reply (arXiv 2507.18071)."""

from __future__ import annotations

from whetstone.algorithm.algorithm import Coefficient, Losses, LossInputs
from whetstone.algorithm.loss import bounded_exp
from whetstone.algorithm.presets.grpo import GRPO
from whetstone.core.settings import NonNegative, Share


class GSPO(GRPO):
    """GRPO with the ratio s = exp(mean over the reply of log p / p_old), clipped much closer to 1.

    The mean over replies of the clipped loss of s is the paper's; it comes about with ``sequence_mean``.
    """

    kl_coef: Coefficient = 0.0
    clip_low: Share | None = 3e-4
    clip_high: NonNegative | None = 4e-4

    def loss(self, inputs: LossInputs) -> Losses:
        """Every token of a reply has the reply's loss."""
        ratio = bounded_exp(inputs.reply_mean(inputs.log_probs - inputs.old))
        return self._clipped(ratio, inputs.advantages)

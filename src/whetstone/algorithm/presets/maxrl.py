"""MaxRL: maximum likelihood reinforcement learning (arXiv 2602.02710)."""

from __future__ import annotations

from whetstone.algorithm.algorithm import Aggregation, Baseline, Coefficient
from whetstone.algorithm.presets.grpo import GRPO


class MaxRL(GRPO):
    """GRPO with the mean reward as the divisor, so that a problem counts the more the less it is solved.

    With n replies and one update a step, that is the gradient of the mean of pass@k / k over k up to n, an
    expansion of the log-likelihood of a right reply. The paper derives it for rewards of 0 and 1. A group
    whose mean reward is not above 0 has no signal.
    """

    advantage: Baseline = "group_relative"
    aggregation: Aggregation = "token_mean"
    kl_coef: Coefficient = 0.0

"""Rules that decide which groups carry no learning signal."""

from __future__ import annotations

from collections.abc import Sequence

from whetstone.algorithm.algorithm import Algorithm
from whetstone.algorithm.loss_free import REJECTED, UNSCORED
from whetstone.core.sample import Group

# All rewards are equal, so every advantage would be zero.
ZERO_VARIANCE = "zero_variance"


def drop_reason(group: Group, spec: Algorithm) -> str | None:
    """Return why ``spec`` does not train on a group, or None if it does."""
    rewards = [spec.trained_reward(sample) for sample in group.samples]
    if spec.cross_entropy:
        # A cross-entropy has no baseline, so one reply is enough.
        return REJECTED if all(reward is None for reward in rewards) else None
    return drop_reason_of_rewards(rewards, drop_zero_variance=spec.drop_zero_variance)


def drop_reason_of_rewards(rewards: Sequence[float | None], *, drop_zero_variance: bool) -> str | None:
    """Return the drop reason of a group with these rewards; a reward is None if the sample has none."""
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return UNSCORED
    if drop_zero_variance and min(scored) == max(scored):
        return ZERO_VARIANCE
    return None

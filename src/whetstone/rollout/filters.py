"""Rules that decide which groups carry no learning signal."""

from __future__ import annotations

from collections.abc import Sequence

from whetstone.algorithm.loss_free import UNSCORED
from whetstone.core.sample import Group

# All rewards are equal, so every advantage would be zero.
ZERO_VARIANCE = "zero_variance"


def drop_reason(group: Group, *, drop_zero_variance: bool) -> str | None:
    """Return why a group carries no learning signal and is not trained on, or None if it is trained on."""
    return drop_reason_of_rewards(
        [sample.reward for sample in group.samples], drop_zero_variance=drop_zero_variance
    )


def drop_reason_of_rewards(rewards: Sequence[float | None], *, drop_zero_variance: bool) -> str | None:
    """Return the drop reason of a group with these rewards; a reward is None if the sample has none."""
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return UNSCORED
    if drop_zero_variance and min(scored) == max(scored):
        return ZERO_VARIANCE
    return None

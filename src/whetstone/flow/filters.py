"""Which groups carry no learning signal."""

from __future__ import annotations

from collections.abc import Sequence

from whetstone.sample import Group

UNSCORED = "unscored"
"""Fewer than two samples have a reward (the others have no verdict that counts)."""

ZERO_VARIANCE = "zero_variance"
"""All rewards are equal, so every advantage would be zero."""


def drop_reason(group: Group, *, drop_zero_variance: bool) -> str | None:
    """Why a group carries no learning signal and is not trained on, or None when it is."""
    return reason_of([sample.reward for sample in group.samples], drop_zero_variance=drop_zero_variance)


def reason_of(rewards: Sequence[float | None], *, drop_zero_variance: bool) -> str | None:
    """The same of the rewards alone, None where a sample has none."""
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return UNSCORED
    if drop_zero_variance and min(scored) == max(scored):
        return ZERO_VARIANCE
    return None

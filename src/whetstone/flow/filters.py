"""Which groups carry a learning signal, and why the others do not. Every drop has a reason."""

from __future__ import annotations

from whetstone.sample import Group

UNSCORED = "unscored"
"""Fewer than two samples have a reward (the judge or the engine failed on the others)."""

ZERO_VARIANCE = "zero_variance"
"""All rewards are equal, so every advantage would be zero."""


def drop_reason(group: Group, *, drop_zero_variance: bool) -> str | None:
    """Why a group is not trained on, or None when it is."""
    rewards = group.rewards()
    if len(rewards) < 2:
        return UNSCORED
    if drop_zero_variance and min(rewards) == max(rewards):
        return ZERO_VARIANCE
    return None

"""The siblings of a reply: replies to one prompt, which stand beside each other in a step's file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import fsum

from msgspec import Struct

from whetstone.report.rollouts import Rollout


class Placed(Struct, frozen=True):
    """A rollout in its step: its row there, its group, and how much its reward is ``above`` that."""

    rollout: Rollout
    row: int
    group: int
    above: float | None


def placed(rollouts: Sequence[Rollout]) -> list[Placed]:
    """All rollouts of a step, in their places."""
    groups = groups_of([rollout.problem_id for rollout in rollouts])
    above = above_group(groups, [rollout.reward for rollout in rollouts])
    rows = zip(rollouts, groups, above, strict=True)
    return [Placed(rollout, row, group, its) for row, (rollout, group, its) in enumerate(rows)]


def groups_of(problem_ids: Sequence[str]) -> list[int]:
    """The group of each reply, by number, 0 first: neighbours with the same problem are one."""
    return [number for number, (_, same) in enumerate(groupby(problem_ids)) for _ in same]


def above_group(groups: Sequence[int], rewards: Sequence[float | None]) -> list[float | None]:
    """By how much each reward is above the mean of its group; None for a reply that has none.

    That is what every group baseline begins with. What an algorithm makes of it then (a division, a mask) is
    its own, and is not written down.
    """
    paid: dict[int, list[float]] = {}
    for group, reward in zip(groups, rewards, strict=True):
        if reward is not None:
            paid.setdefault(group, []).append(reward)
    means = {group: fsum(values) / len(values) for group, values in paid.items()}
    return [
        None if reward is None else reward - means[group]
        for group, reward in zip(groups, rewards, strict=True)
    ]

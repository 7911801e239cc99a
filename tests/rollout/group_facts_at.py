"""Facts of groups whose tokens are all of one weight version."""

from __future__ import annotations

from whetstone.rollout.group_facts import GroupFacts


def facts_at(
    problem: str, source: str, difficulty: str, rewards: list[float | None], lengths: list[int], version: int
) -> GroupFacts:
    return GroupFacts(
        problem,
        source,
        difficulty,
        rewards,
        [{version: length} if length else {} for length in lengths],
        [""] * len(rewards),
    )

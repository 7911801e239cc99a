"""The isolation tiers of this machine as parameters of tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import pytest

from tests.drawn import commit
from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import Sandbox, Tier, detect_tier


def every_tier() -> list[Any]:
    """The strongest tier of this machine, and the others, which are left to ``make test-slow``.

    Empty where no sandbox can be made, so that the tests are skipped.
    """
    try:
        strongest = detect_tier()
    except SandboxUnavailable:
        return []
    return [
        pytest.param(tier, id=tier.label, marks=() if tier is strongest else pytest.mark.slow)
        for tier in Tier
    ]


@cache
def offered_tiers() -> frozenset[str]:
    """Return the labels of the tiers that this machine offers. Starts a sandbox at each."""
    offered: set[str] = set()
    for tier in Tier:
        try:
            Sandbox({}, tier=tier).close()
        except SandboxUnavailable:
            continue
        offered.add(tier.label)
    return frozenset(offered)


def draw_tiers(items: Sequence[pytest.Item]) -> None:
    """Leave each test that runs at several tiers one of them; at the others it is marked ``extended``.

    The commit and the test decide which of the offered tiers it is. Tests with the mark ``every_tier`` keep
    all of them. Tests that are marked already are not counted.
    """
    groups: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        label = _tier_of(item)
        if label is not None and not any(map(item.get_closest_marker, ("every_tier", "extended", "slow"))):
            groups[item.nodeid.replace(label, "", 1)][label] = item
    for name, group in groups.items():
        offered = sorted(group.keys() & offered_tiers()) or sorted(group)
        kept = Random(f"{commit()} {name}").choice(offered)
        for label, item in group.items():
            if label != kept:
                item.add_marker(pytest.mark.extended)


def _tier_of(item: pytest.Item) -> str | None:
    """Return the label of the tier that is a parameter of the test or of one of its fixtures."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    for value in parameters.values():
        if isinstance(value, Tier):
            return value.label
        if isinstance(value, str) and value in {tier.label for tier in Tier}:
            return value
    return None

"""Draws what ``make test`` runs of many equal cases; ``make test-all`` runs the rest too.

A test with the mark ``drawn(6)`` keeps six of its cases. A test that runs at several isolation tiers keeps
one of them. The commit decides which, so a failure can be repeated, and every case is drawn within a few
commits. The other cases get the mark ``extended``.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.tiers import refusal
from whetstone import __version__
from whetstone.sandbox import Tier

_ROOT = Path(__file__).parents[1]
_TIERS = {tier.label: tier for tier in Tier}


@cache
def commit() -> str:
    """Return the hash of the commit that is tested, or the version outside of a repository."""
    command = ["git", "-C", str(_ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__


def draw_tiers(items: Sequence[pytest.Item]) -> None:
    """Keep one tier of each test that runs at several, of those that the machine offers.

    It is the same for all tests of a file, which share their sandboxes. Tests with the mark ``every_tier``
    keep all of them. Tests that are marked already are not counted.
    """
    groups: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        label = _tier_of(item)
        if label is not None and not _has_mark(item, "every_tier", "extended", "slow"):
            test, _, case = item.nodeid.partition("[")
            groups[f"{test}[{case.replace(label, '', 1)}"][label] = item
    for name, group in groups.items():
        offered = sorted(label for label in group if not refusal(_TIERS[label])) or sorted(group)
        file = name.partition("::")[0]
        _keep({group[Random(f"{commit()} {file}").choice(offered)]}, group.values())


def draw_cases(items: Sequence[pytest.Item]) -> None:
    """Keep as many cases of each test as its mark ``drawn(count, always=())`` says.

    ``always`` has the names of cases, as they stand in brackets, that are kept in any case and count too.
    """
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _has_mark(item, "drawn") and not _has_mark(item, "extended", "slow"):
            groups[item.nodeid.partition("[")[0]].append(item)
    for name, group in groups.items():
        mark = group[0].get_closest_marker("drawn")
        assert mark is not None
        count, always = mark.args[0], mark.kwargs.get("always", ())
        kept = [item for item in group if item.nodeid.partition("[")[2].removesuffix("]") in always]
        others = [item for item in group if item not in kept]
        count = min(max(0, count - len(kept)), len(others))
        _keep({*kept, *Random(f"{commit()} {name}").sample(others, count)}, group)


def _keep(kept: set[pytest.Item], group: Collection[pytest.Item]) -> None:
    for item in group:
        if item not in kept:
            item.add_marker(pytest.mark.extended)


def _has_mark(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) is not None for name in names)


def _tier_of(item: pytest.Item) -> str | None:
    """Return the label of the tier that is a parameter of the test or of one of its fixtures."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    for value in parameters.values():
        if isinstance(value, Tier):
            return value.label
        if isinstance(value, str) and value in _TIERS:
            return value
    return None

"""What honest programs use, tried on every tier; ``docs/judging.md`` holds the table of it, made here.

``WHETSTONE_WRITE_DOCS=1 pytest tests/sandbox/test_tier_differences.py`` writes the table.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from tests.beside import data_beside
from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import Profile, RunLimits, Sandbox, SandboxJob, Tier

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "judging.md"
BEGIN, END = "<!-- made by tests/sandbox/test_tier_differences.py -->\n", "<!-- end -->\n"
LIMITS = RunLimits(cpu_s=20.0, memory_bytes=512 << 20, output_bytes=1 << 20)
INPUT = b"one\ntwo\n"

FEATURES: dict[str, str] = data_beside(__file__)


def works(box: Sandbox, source: str) -> bool:
    """Whether a program that uses a feature ends well."""
    result = box.run(SandboxJob("script", source.encode(), LIMITS, stdin=INPUT))
    return result.exit_code == 0


def tried(tier: Tier) -> dict[str, bool]:
    """What works on a tier. Raises SandboxUnavailable."""
    with Sandbox({}, profile=Profile(hash_seed=0), tier=tier) as box:
        return {name: works(box, source) for name, source in FEATURES.items()}


def in_words(found: dict[Tier, dict[str, bool]]) -> str:
    """The table: what some tier refuses, and in a line below it, what none does."""
    tiers = sorted(found, reverse=True)
    labels = [tier.label for tier in tiers]
    lines = [f"| a Python program uses | {' | '.join(labels)} |", f"| --- |{' --- |' * len(tiers)}"]
    everywhere: list[str] = []
    for name in FEATURES:
        cells = [found[tier][name] for tier in tiers]
        if all(cells):
            everywhere.append(name)
        else:
            lines.append(f"| {name} | {' | '.join('yes' if cell else 'no' for cell in cells)} |")
    below = textwrap.fill(f"On every tier: {'; '.join(everywhere)}.", 118, break_on_hyphens=False)
    return "\n".join(lines) + f"\n\n{below}\n"


@pytest.fixture(scope="module")
def found() -> dict[Tier, dict[str, bool]]:
    found: dict[Tier, dict[str, bool]] = {}
    for tier in Tier:
        try:
            found[tier] = tried(tier)
        except SandboxUnavailable:
            continue
    if set(found) != set(Tier):
        pytest.skip(f"this machine offers only {[tier.label for tier in found]}")
    return found


def test_the_table_of_differences_between_tiers_is_true(found: dict[Tier, dict[str, bool]]) -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    written, after = rest.split(END)
    table = in_words(found)
    if os.environ.get("WHETSTONE_WRITE_DOCS"):
        PAGE.write_text(before + BEGIN + table + END + after, encoding="utf-8")
    else:
        assert written == table, f"docs/judging.md should have:\n\n{table}"


def test_each_difference_between_tiers_is_stable(found: dict[Tier, dict[str, bool]]) -> None:
    """A feature that works now and then would be worse than one that is refused."""
    shared = FEATURES["`multiprocessing.shared_memory`"]
    for tier, works_there in found.items():
        with Sandbox({}, profile=Profile(hash_seed=0), tier=tier) as box:
            results = {works(box, shared) for _ in range(20)}
        assert results == {works_there["`multiprocessing.shared_memory`"]}

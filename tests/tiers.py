"""The isolation tiers as parameters of tests, and whether this machine offers them."""

from __future__ import annotations

from functools import cache

import pytest

from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import Sandbox, Tier

ALL_TIERS = [pytest.param(tier, id=tier.label) for tier in Tier]


@cache
def refusal(tier: Tier) -> str:
    """Return why this machine does not offer the tier; empty if it does. Starts a sandbox once."""
    try:
        Sandbox({}, tier=tier).close()
    except SandboxUnavailable as refused:
        return str(refused)
    return ""


def skip_unless_offered(tier: Tier) -> None:
    """Skip the test if this machine does not offer the tier."""
    if reason := refusal(tier):
        pytest.skip(reason)

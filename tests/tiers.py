"""The isolation tiers of this machine as parameters of tests."""

from __future__ import annotations

from typing import Any

import pytest

from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import Tier, detect_tier


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

"""Judges that several tests share: starting workers takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whetstone.core.errors import SandboxUnavailable
from whetstone.judge import Judge
from whetstone.sandbox import Tier


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge(workers=2) as judge:
        yield judge


@pytest.fixture(scope="module", params=list(Tier), ids=lambda tier: tier.label)
def tier_judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    """A judge on each tier of this machine."""
    try:
        judge = Judge(workers=1, tier=request.param.label)
    except SandboxUnavailable as refused:
        pytest.skip(str(refused))
    with judge:
        yield judge

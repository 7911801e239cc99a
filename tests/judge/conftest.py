"""Judges that several tests share: starting workers takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.judge import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge(workers=2) as judge:
        yield judge


@pytest.fixture(scope="module", params=ALL_TIERS)
def tier_judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    """A judge on each tier of this machine."""
    skip_unless_offered(request.param)
    with Judge(workers=1, tier=request.param.label) as judge:
        yield judge

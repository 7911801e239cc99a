"""One judge for all tests of this folder: starting workers takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from whetstone.judge import Judge

# Timing never decides a test, however busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge(workers=2) as judge:
        yield judge

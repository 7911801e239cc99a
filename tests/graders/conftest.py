"""One judge for all tests of this folder, which compares as published graders do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whetstone.judge import Judge
from whetstone_graders import COMPARISONS


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge(workers=2, comparisons=COMPARISONS) as judge:
        yield judge

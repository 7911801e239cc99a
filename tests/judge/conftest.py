"""One judge for all tests of this folder: starting workers takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whetstone.judge import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with Judge(workers=2) as judge:
        yield judge

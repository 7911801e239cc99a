"""Every program in the tables gets the verdict that is stated there."""

from __future__ import annotations

import pytest

from tests.judge.verdict_tables import FOLDER, entries, misjudged
from whetstone.judge import Judge

pytestmark = pytest.mark.isolation


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.toml")))
def test_every_program_of_a_table_gets_its_verdict(judge: Judge, file: str) -> None:
    assert misjudged(judge, entries(file)) == {}

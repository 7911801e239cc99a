"""Every program in the tables gets the verdict that is stated there."""

from __future__ import annotations

import pytest

from tests.judge.verdict_tables import FOLDER, entries, misjudged
from whetstone.core.problem import problem_from
from whetstone.judge import Judge

FILES = sorted(path.name for path in FOLDER.glob("*.toml"))


@pytest.mark.isolation
@pytest.mark.parametrize("file", FILES)
def test_every_program_of_a_table_gets_its_verdict(judge: Judge, file: str) -> None:
    assert misjudged(judge, entries(file)) == {}


@pytest.mark.parametrize("file", FILES)
def test_every_problem_of_a_table_fits_the_schema(file: str) -> None:
    assert [problem_from(entry.problem).id for entry in entries(file)]

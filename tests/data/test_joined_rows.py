"""Rows that hold solutions to problems of other sets are joined with the rows of these sets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.data.command import whetstone_data
from tests.data.source_rows import FIXTURES, imported
from whetstone.core.errors import UserError
from whetstone.data.dataset import open_problems
from whetstone.data.decisions import read_decisions

ROWS = FIXTURES / "opencodereasoning-2.jsonl"


def test_solutions_are_joined_with_the_statement_and_tests_of_their_set(tmp_path: Path) -> None:
    shutil.copy(ROWS, tmp_path / "python.jsonl")
    for name in ("taco", "open-r1-codeforces"):
        (tmp_path / name).mkdir()
        shutil.copy(FIXTURES / f"{name}.jsonl", tmp_path / name / "rows.jsonl")
    out = tmp_path / "out"
    file = tmp_path / "python.jsonl"
    assert whetstone_data("prepare", f"opencodereasoning-2={file}", "--validation", "0", "--out", out) == 0
    problems = {problem.id: problem for problem in open_problems(str(out))}
    assert set(problems) == {"opencodereasoning-2/q-taco-0", "opencodereasoning-2/q-open-r1/codeforces-0"}
    taco = imported("taco", "taco.jsonl")[0][0]
    joined = problems["opencodereasoning-2/q-taco-0"]
    assert (joined.statement, joined.tests) == (taco.statement, taco.tests)
    # The solution that failed is left out, and a fence is removed.
    own = joined.references[len(taco.references) :]
    assert [program.source.splitlines()[0] for program in own] == [
        "a, b = map(int, input().split())",
        "a, b = input().split()",
    ]
    assert joined.meta["licence"] == taco.meta["licence"]
    contest = problems["opencodereasoning-2/q-open-r1/codeforces-0"]
    assert [program.language for program in contest.references] == ["cpp17"]
    assert contest.checker is not None
    dropped = {one.problem_id: one for one in read_decisions(out / "decisions.jsonl")}
    assert {one.reason for one in dropped.values()} == {"tests_elsewhere"}
    reasons = {name.rpartition("/q-")[2]: one.detail for name, one in dropped.items()}
    assert "open-r1-codeforces, split train, has no row of this number" in reasons["open-r1/codeforces-99"]
    assert f"{tmp_path}/apps: no such file or folder" in reasons["apps-0"]
    assert "no source reads row 0 of kattis" in reasons["kattis-0"]


def test_solutions_without_any_of_their_sets_are_refused_with_the_reason(tmp_path: Path) -> None:
    shutil.copy(ROWS, tmp_path / "python.jsonl")
    with pytest.raises(UserError, match=r"gave no problem; the first: tests_elsewhere, .*row 0 of "):
        whetstone_data("prepare", f"opencodereasoning-2={tmp_path}/python.jsonl", "--out", tmp_path / "out")

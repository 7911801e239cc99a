"""APPS: rows in its schema become problems that the judge agrees with, and other rows are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whetstone.core.problem import CallTests, Problem, StdinTests
from whetstone.data.decisions import ProblemDecision
from whetstone.data.files import read_problems, write_problems
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import SchemaError, import_rows
from whetstone.data.sources.table import source_named
from whetstone.judge import Judge

FIXTURE = Path(__file__).parent / "fixtures" / "apps.jsonl"


def imported(file: Path = FIXTURE) -> tuple[list[Problem], list[ProblemDecision]]:
    results = list(import_rows(source_named("apps"), read_rows([file])))
    problems = [result for result in results if isinstance(result, Problem)]
    return problems, [result for result in results if isinstance(result, ProblemDecision)]


@pytest.mark.process
def test_rows_become_problems_whose_references_the_judge_accepts(tmp_path: Path) -> None:
    problems, decisions = imported()
    assert [p.id for p in problems] == ["apps/0", "apps/1", "apps/2"]
    pairs = [(p, reference) for p in problems for reference in p.references]
    assert len(pairs) == 4
    with Judge(workers=1) as judge:
        assert [j.verdict.value for j in judge.judge_many(pairs)] == ["accepted"] * 4
    write_problems(tmp_path / "p.parquet", problems)
    assert list(read_problems(tmp_path / "p.parquet")) == problems
    assert [(d.problem_id, d.reason) for d in decisions] == [
        ("apps/3", "no_tests"),
        ("apps/4", "malformed_tests"),
    ]


def test_text_is_kept_and_lists_are_lines_or_returned_values() -> None:
    text, call, lines = [problem.tests for problem in imported()[0]]
    assert isinstance(text, StdinTests)
    assert isinstance(call, CallTests)
    assert isinstance(lines, StdinTests)
    assert text.cases[0].input == "1 2\n"
    assert (call.class_, call.function) == ("Solution", "doubled")
    assert [case.expected for case in call.cases] == [[2, 4], []]
    assert (lines.cases[0].input, lines.cases[0].output) == ("a\nb\n", "a\na\nb\nb\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input_output": None}, "column `input_output` is a NoneType, expected an object with `inputs`"),
        ({"question": 3}, "column `question` is a int, expected the statement"),
        ({"solutions": ["print()"]}, "column `solutions` is a list, expected a list of programs, as JSON"),
    ],
)
def test_a_value_of_another_type_is_a_schema_error_with_its_place(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
    for row in rows:
        row |= change
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SchemaError) as error:
        imported(file)
    assert str(error.value).startswith(f"{file}, row 1: {words}")


def test_a_renamed_column_is_a_schema_error_that_names_the_known_revision(tmp_path: Path) -> None:
    row = json.loads(FIXTURE.read_text().splitlines()[0])
    row["tests"] = row.pop("input_output")
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(SchemaError) as error:
        imported(tmp_path / "train.jsonl")
    message = str(error.value)
    assert "column `input_output` is missing" in message
    assert "columns found: id, question, solutions, difficulty, url, starter_code, tests" in message
    assert "revision 21e74ddf8de1a21436da12e3e653065c5213e9d1 of codeparrot/apps is known to work" in message

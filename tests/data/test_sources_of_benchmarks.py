"""Benchmarks and sets with checkers: rows in their schemas become problems that the judge agrees with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whetstone.data.decisions import Decision
from whetstone.data.files import read_problems, write_problems
from whetstone.data.sources.plus_tests import plus_inputs
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import SchemaError, import_rows
from whetstone.data.sources.table import source_named
from whetstone.judge import Judge
from whetstone.problem import AssertTests, Problem, Program

FIXTURES = Path(__file__).parent / "fixtures"

# Source, fixture, its problems, and a wrong program for each of those that have a reference.
CASES: list[tuple[str, str, dict[str, str]]] = [
    ("humaneval", "humaneval.jsonl", {"humaneval/0": "def root(x):\n    return x / 2"}),
    ("mbpp", "mbpp.json", {"mbpp/2": "def doubled(items):\n    return items + items"}),
    (
        "mbpp-full",
        "mbpp_full.jsonl",
        dict.fromkeys(("mbpp-full/601", "mbpp-full/11"), "def larger(a, b):\n    return a if a < b else b"),
    ),
    (
        "humanevalplus",
        "humanevalplus.jsonl",
        {
            "humanevalplus/0": "def root(x):\n    return 2.0 if x == 4 else 1.4142135623730951",
            "humanevalplus/32": "def find_zero(xs):\n    return -0.5",
        },
    ),
    ("humanevalplus", "humanevalplus_hub.jsonl", {"humanevalplus/0": "def root(x):\n    return 2.0"}),
    (
        "mbppplus",
        "mbppplus.jsonl",
        {
            "mbppplus/2": "def similar_elements(left, right):\n    return (4, 5)",
            "mbppplus/404": "def minimum(a, b):\n    return b if b < a else 1",
            "mbppplus/600": "def minimum(a, b):\n    return b",
        },
    ),
    ("mbppplus", "mbppplus_hub.jsonl", {"mbppplus/3": "def minimum(a, b):\n    return 1"}),
]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=1, stop_at_first_failure=True) as judge:
        yield judge


def imported(name: str, file: Path) -> tuple[list[Problem], list[Decision]]:
    source = source_named(name)
    results = list(import_rows(source, source.read(file) if source.read else read_rows([file])))
    problems = [result for result in results if isinstance(result, Problem)]
    return problems, [result for result in results if isinstance(result, Decision)]


def problem_of(name: str, fixture: str, problem_id: str) -> Problem:
    return next(p for p in imported(name, FIXTURES / fixture)[0] if p.id == problem_id)


@pytest.mark.parametrize(("name", "fixture", "wrong"), CASES, ids=[fixture for _, fixture, _ in CASES])
def test_the_judge_accepts_references_and_refuses_wrong_programs_and_files_hold_all_of_it(
    name: str, fixture: str, wrong: dict[str, str], judge: Judge, tmp_path: Path
) -> None:
    problems, _ = imported(name, FIXTURES / fixture)
    assert [problem.id for problem in problems] == list(wrong)
    for problem in problems:
        verdicts = [judge.judge(problem, reference).verdict.value for reference in problem.references]
        assert verdicts == ["accepted"] * len(problem.references)
        known_wrong = [*problem.wrong, Program(problem.language, wrong[problem.id])]
        assert not any(judge.judge(problem, program).accepted for program in known_wrong), problem.id
    write_problems(tmp_path / "problems.parquet", problems)
    assert list(read_problems(tmp_path / "problems.parquet")) == problems


@pytest.mark.parametrize(
    ("name", "fixture", "change", "words"),
    [
        (
            "humaneval",
            "humaneval.jsonl",
            {"entry_point": "g"},
            "`prompt` is text without it, expected a definition",
        ),
        (
            "humaneval",
            "humaneval.jsonl",
            {"test": "pass"},
            "`test` is text without it, expected a function check",
        ),
        (
            "humaneval",
            "humaneval.jsonl",
            {"prompt": None},
            "`prompt` is a NoneType, expected imports, helpers",
        ),
        ("mbpp", "mbpp.json", {"task_id": "two"}, "`task_id` is a str, expected a number"),
        ("mbpp", "mbpp.json", {"test_list": []}, "`test_list` is an empty list, expected a list of asserts"),
        ("mbpp", "mbpp.json", {"code": "def ("}, "`code` is no Python code"),
        ("mbpp", "mbpp.json", {"code": "def other(): pass"}, "`test_list` is without them, expected asserts"),
        (
            "humanevalplus",
            "humanevalplus.jsonl",
            {"plus_input": [1]},
            "`plus_input` is a list of other things",
        ),
        ("mbppplus", "mbppplus.jsonl", {"atol": "0"}, "`atol` is a str, expected a number"),
    ],
)
def test_a_value_of_another_kind_is_a_schema_error(
    name: str, fixture: str, change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    file = rewritten(fixture, tmp_path, change)
    with pytest.raises(SchemaError) as error:
        imported(name, file)
    assert f"{file}, row 1: column {words}" in str(error.value)


@pytest.mark.parametrize(("name", "fixture"), [(name, fixture) for name, fixture, _ in CASES])
def test_a_renamed_column_is_a_schema_error_with_what_was_expected(
    name: str, fixture: str, tmp_path: Path
) -> None:
    source = source_named(name)
    if source.read is not None:
        pytest.skip("a folder has no columns")
    first = next(iter(source.columns))
    file = rewritten(fixture, tmp_path, {}, drop=first.split(" or "))
    with pytest.raises(SchemaError) as error:
        imported(name, file)
    message = str(error.value)
    assert f"column `{first}` is missing, expected {source.columns[first]}" in message
    if source.revision:
        assert f"revision {source.revision} of {source.hub_id} is known to work" in message


def rewritten(fixture: str, folder: Path, change: dict[str, Any], drop: list[str] | None = None) -> Path:
    """A fixture's first row, changed, in a file of the same kind."""
    text = (FIXTURES / fixture).read_text()
    row = json.loads(text)[0] if fixture.endswith(".json") else json.loads(text.splitlines()[0])
    row = {key: value for key, value in {**row, **change}.items() if key not in (drop or [])}
    file = folder / fixture
    file.write_text(json.dumps([row] if fixture.endswith(".json") else row))
    return file


def test_mbpp_calls_the_function_that_the_asserts_call_and_not_its_helper() -> None:
    tests = problem_of("mbpp", "mbpp.json", "mbpp/2").tests
    assert isinstance(tests, AssertTests)
    assert (tests.entry_point, tests.setup) == ("doubled", "import math")


def test_mbpp_knows_the_splits_of_the_paper() -> None:
    problems, _ = imported("mbpp-full", FIXTURES / "mbpp_full.jsonl")
    assert [problem.meta["split"] for problem in problems] == ["train", "test"]
    assert "assert larger(5, 5)" not in problems[0].statement  # a challenge test is not shown


def test_inputs_of_the_plus_releases_come_back_as_python_values() -> None:
    tuples = problem_of("mbppplus", "mbppplus.jsonl", "mbppplus/2").tests
    numbers = problem_of("mbppplus", "mbppplus.jsonl", "mbppplus/404").tests
    assert isinstance(tuples, AssertTests)
    assert isinstance(numbers, AssertTests)
    found, other = plus_inputs(tuples), plus_inputs(numbers)
    assert found is not None
    assert other is not None
    assert found.base == [[(3, 4, 5), (5, 7, 4)]]
    assert found.plus == [[(), ()], [(1, 2), (2, 1)]]
    assert other.plus == [[float("-inf"), 2], [0.1, 10**40]]
    assert plus_inputs(AssertTests(asserts=["assert f() == 1"])) is None

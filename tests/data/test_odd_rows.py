"""No row ends an import with a traceback: every row is imported, or dropped with a reason."""

from __future__ import annotations

import copy
import json
import random
import shutil
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.data.source_rows import FIXTURES, SOURCE_FIXTURES, imported, rows_of, set_testlib
from whetstone.core.problem import CallTests, StdinTests
from whetstone.data.files import read_problems, write_problems
from whetstone.data.sources.opencodereasoning import join
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.row_problem import day_of
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import Row, SchemaError, import_rows
from whetstone.data.sources.table import source_named

LONG = 10**5000
# Each JSON type, and values at the borders of the types. A row is a copy, so sharing does not matter.
ODD: list[Any] = [
    None, True, False, 0, 5, -1, 1.5, 1e308, float("nan"), float("inf"), LONG, -LONG, 2**64,
    "", " ", "text", "5", "null", "[]", "{}", "[1]", '{"a": 1}', "\ud800", "\0", "\ufeff", "[" * 5000,
    "1" * 5000, [], [None], [5], [1.5], ["text"], [[]], [[1]], [{}], [[["x"]]], [LONG], ["\ud800"],
    [True, "a", {}], {}, {"a": 1}, {"input": None}, {"input": 5, "output": []}, {"inputs": 5, "outputs": 5},
    {"": ""}, {"x": LONG}, {"inputs": [1], "outputs": [2, 3]}, {"inputs": [None], "outputs": [None]},
    [{"input": "1", "output": LONG}],
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a row, to a depth that all importers read."""
    if path:
        yield path
    if len(path) < 4 and isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:2]):
            yield from places(inner, (*path, key))


def replaced(row: Row, path: tuple[Any, ...], value: Any) -> Row:
    made: Any = copy.deepcopy(row)
    target = made
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = copy.deepcopy(value)
    return made


def packed_fields(row: Row) -> Iterator[tuple[str, Any]]:
    """The fields that pack JSON into text, with their values."""
    for name, value in row.items():
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                yield name, json.loads(value)
            except ValueError:
                continue


@pytest.fixture(autouse=True)
def testlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_TESTLIB", "")
    set_testlib(tmp_path)


def check(name: str, good: list[Row], odd: Row, file: Path) -> None:
    problems, decisions = imported(name, [*good, odd])
    assert all(one.reason and one.action == "drop" for one in decisions)
    assert msgspec.json.encode(decisions)
    write_problems(file, problems)
    assert [one.id for one in read_problems(file)] == [one.id for one in problems]


def joined_with(rows: list[Row], other: str, folder: Path) -> list[Row]:
    """The rows of OpenCodeReasoning-2 whose problems are in the fixture of another source."""
    (folder / other).mkdir(parents=True)
    shutil.copy(FIXTURES / f"{other}.jsonl", folder / other)
    named = [("rows", row) for row in rows if row["dataset"] == other]
    return [row for _, row in join(named, folder)]


@pytest.mark.drawn(4)
@pytest.mark.parametrize(("name", "file"), SOURCE_FIXTURES)
def test_a_row_with_any_value_in_any_field_is_imported_or_dropped(
    name: str, file: str, tmp_path: Path
) -> None:
    rows = rows_of(file)
    if name == "opencodereasoning-2":  # its rows need the row of another set
        rows = joined_with(rows, "taco", tmp_path / "other_sets")
    drawn = random.Random(44)
    good, stored = rows[:1], tmp_path / "set.jsonl"
    for row in rows[:2]:
        for path in places(row):
            values = ODD if len(path) == 1 else drawn.sample(ODD, 3)
            for value in values:
                check(name, good, replaced(row, path, value), stored)
            if len(path) == 1:
                check(name, good, {key: row[key] for key in row if key != path[0]}, stored)
        for field, content in packed_fields(row):
            for path in places(content):
                for value in drawn.sample(ODD, 4):
                    text = _json(replaced(content, path, value))
                    check(name, good, {**row, field: text}, stored)


def _json(value: Any) -> str:
    """JSON with integers of any length, as other programs write it."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value)
    finally:
        sys.set_int_max_str_digits(limit)


APPS = rows_of("apps.jsonl")


def test_solutions_of_other_types_cost_a_row_only_its_references() -> None:
    for solutions in ("null", "5", '"print(1)"', '{"a": 1}', "[null]", "[5]", "true", "1.5", "[[]]"):
        [problem], decisions = imported("apps", [{**APPS[0], "solutions": solutions}])
        assert not decisions
        assert len(problem.references) == (1 if solutions == '"print(1)"' else 0)


@pytest.mark.parametrize(
    ("date", "day"),
    [
        ("2024-03-01T14:30:00", "2024-03-01"),
        (datetime(2024, 3, 1, 14, 30), "2024-03-01"),
        (1709303400, "2024-03-01"),
        (1709303400_000, "2024-03-01"),
        (1709303400_000_000_000, "2024-03-01"),
        (-86400, "1969-12-31"),
        (2**56, "1972-04-13"),
        (True, ""),
        (2.5, ""),
        ("soon", ""),
        (None, ""),
    ],
)
def test_a_date_is_read_in_the_forms_in_which_tables_are_saved(date: Any, day: str) -> None:
    assert day_of(date) == day
    [contest] = rows_of("open-r1-codeforces.jsonl")[:1]
    [problem], _ = imported("open-r1-codeforces", [{**contest, "contest_start": date}])
    assert problem.meta.get("contest_date", "") == day


def test_decoded_columns_of_livecodebench_are_read_as_their_texts() -> None:
    for row in rows_of("livecodebench.jsonl"):
        [found], _ = imported("livecodebench", [row])
        columns = {"public_test_cases": unpack, "private_test_cases": unpack, "metadata": unpack}
        decoded = {name: read(row[name], name) for name, read in columns.items()}
        date = datetime.fromisoformat(row["contest_date"])
        for other in ({**decoded, "contest_date": date}, {"contest_date": round(date.timestamp() * 1000)}):
            assert imported("livecodebench", [{**row, **other}]) == ([found], [])


@pytest.mark.parametrize(("source", "column"), [("apps", "question"), ("livecodebench", "question_content")])
def test_a_row_without_a_statement_is_no_problem(source: str, column: str) -> None:
    problems, [dropped] = imported(source, [{**rows_of(f"{source}.jsonl")[0], column: " \n"}])
    assert not problems
    assert (dropped.reason, dropped.detail) == ("no_statement", "rows, row 1: the statement is empty")


def test_the_parts_of_a_message_are_its_text() -> None:
    row = next(row for row in rows_of("verl.jsonl") if isinstance(row["prompt"], list))
    [found], _ = imported("verl", [row])
    text: str = row["prompt"][-1]["content"]
    for parts in ([{"type": "text", "text": text}], [text[:9], {"text": text[9:]}]):
        prompt = [{"role": "user", "content": parts}]
        [problem], _ = imported("verl", [{**row, "prompt": prompt}])
        assert problem.statement == found.statement
    with pytest.raises(SchemaError, match="column `prompt`"):
        imported("verl", [{**row, "prompt": [{"role": "user", "content": [{"type": "image"}]}]}])


def test_one_row_of_another_schema_is_dropped_and_many_are_an_error() -> None:
    odd = {**APPS[0], "question": 5}
    problems, decisions = imported("apps", [odd, APPS[0]])
    assert len(problems) == 1
    assert [one.reason for one in decisions] == ["unexpected_value"]
    assert "column `question` is a int" in decisions[0].detail
    for rows in ([odd], [odd] * 50, [{"other": 1}] * 50):
        with pytest.raises(SchemaError, match="not the schema of `apps`"):
            imported("apps", rows)


def test_a_wrong_schema_is_noticed_after_a_few_rows() -> None:
    read = 0

    def rows() -> Iterator[tuple[str, Row]]:
        nonlocal read
        while True:
            read += 1
            yield "rows", {"other": read}

    with pytest.raises(SchemaError):
        list(import_rows(source_named("apps"), rows()))
    assert read <= 20


def test_line_ends_and_byte_order_marks_of_inputs_are_normalised() -> None:
    for bad in ("\ufeff1 2\r\n3\r\n", "1 2\r\n3\r\n", "\ufeff1 2\n3\n"):
        for tests in (
            {"inputs": [bad], "outputs": ["x\r\n"]},
            {"inputs": [bad.split("\n")[:-1]], "outputs": ["x"]},
        ):
            [problem], _ = imported("apps", [{**APPS[0], "input_output": json.dumps(tests)}])
            assert isinstance(problem.tests, StdinTests)
            assert problem.tests.cases[0].input == "1 2\n3\n"


def test_long_integers_in_rows_are_read(tmp_path: Path) -> None:
    digits = "1" + "0" * 4999 + "7"
    tests = f'{{"inputs": [[[{digits}]]], "outputs": [[-{digits}]], "fn_name": "negated"}}'
    row = {**APPS[0], "starter_code": "def negated(n):\n", "solutions": "[]", "input_output": tests}
    [called], _ = imported("apps", [row])
    assert isinstance(called.tests, CallTests)
    assert called.tests.literals
    lines_of_numbers = f'{{"inputs": [[{digits}]], "outputs": [-{digits}]}}'
    [printed], _ = imported("apps", [{**row, "input_output": lines_of_numbers}])
    assert isinstance(printed.tests, StdinTests)
    assert printed.tests.cases[0].output == f"-{digits}"
    file = tmp_path / "set.jsonl"
    write_problems(file, [called])
    assert list(read_problems(file)) == [called]
    lines = tmp_path / "apps.jsonl"
    lines.write_text(json.dumps({**row, "input_output": "@"}).replace('"@"', tests))
    [(_, read)] = read_rows([lines])
    assert read["input_output"]["inputs"] == [[[10**5000 + 7]]]
    array = tmp_path / "apps.json"
    array.write_text(f"[{lines.read_text()}]")
    assert [row for _, row in read_rows([array])] == [read]


def test_integers_of_absurd_length_are_refused() -> None:
    tests = f'{{"inputs": [[{"7" * 200_000}]], "outputs": [[1]], "fn_name": "f"}}'
    problems, [decision] = imported("apps", [{**APPS[0], "input_output": tests}])
    assert not problems
    assert decision.reason == "broken_tests"

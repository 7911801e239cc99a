"""Training sets in the style of TACO, PRIME and verl: rows in each schema become problems that the judge
agrees with and that files hold, and other rows and schemas are named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whetstone.core.problem import AssertTests, CallTests, Problem, StdinTests
from whetstone.data.decisions import ProblemDecision
from whetstone.data.files import read_problems, write_problems
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import SchemaError, import_rows
from whetstone.data.sources.table import source_named
from whetstone.judge import Judge

FIXTURES = Path(__file__).parent / "fixtures"
# Problems by the kind of their tests, references, and what is dropped, by reason.
CONTENT: dict[str, tuple[dict[str, int], int, dict[str, int]]] = {
    "archer": ({"stdin": 1, "call": 2}, 0, {"no_tests": 1}),
    "areal": ({"stdin": 1, "call": 1}, 2, {"not_code": 1}),
    "code-r1": ({"stdin": 1, "call": 2, "assert": 3}, 6, {"no_tests": 1}),
    "deepcoder-codeforces": ({"stdin": 1}, 0, {"no_tests": 1}),
    "deepcoder-lcbv5": ({"stdin": 1, "call": 1}, 0, {"mixed_tests": 1}),
    "deepcoder-primeintellect": ({"stdin": 1, "call": 1}, 2, {"no_tests": 1, "mixed_tests": 1}),
    "deepcoder-taco": ({"stdin": 1, "call": 1}, 2, {"malformed_tests": 1}),
    "primeintellect": (
        {"stdin": 2, "call": 1},
        3,
        {"unsupported_language": 1, "broken_tests": 1, "malformed_tests": 1, "no_tests": 1},
    ),
    "primeintellect-python": ({"stdin": 1, "call": 2}, 3, {"unknown_test_type": 1}),
    "synthetic-1": ({"stdin": 1, "call": 1}, 2, {"duplicate_id": 1, "not_code": 1}),
    "taco": ({"stdin": 1, "call": 2}, 4, {"no_tests": 1, "malformed_tests": 1}),
    "taco-verified": ({"stdin": 1, "call": 2}, 4, {"no_tests": 1, "malformed_tests": 1}),
    "verl": ({"stdin": 1, "call": 1, "assert": 2}, 4, {"not_code": 1, "broken_tests": 1}),
}
KINDS: dict[type, str] = {StdinTests: "stdin", CallTests: "call", AssertTests: "assert"}
TEST_COLUMN = {
    **dict.fromkeys(("archer", "code-r1", "verl"), "reward_model"),
    **dict.fromkeys(("areal", "taco", "taco-verified"), "input_output"),
    **dict.fromkeys(("primeintellect", "primeintellect-python", "synthetic-1"), "verification_info"),
    **{name: "tests" for name in CONTENT if name.startswith("deepcoder-")},
}


def imported(name: str, file: Path | None = None) -> tuple[list[Problem], list[ProblemDecision]]:
    rows = read_rows([file or FIXTURES / f"{name}.jsonl"])
    results = list(import_rows(source_named(name), rows))
    problems = [result for result in results if isinstance(result, Problem)]
    return problems, [result for result in results if isinstance(result, ProblemDecision)]


def problem_with(name: str, words: str) -> Problem:
    return next(problem for problem in imported(name)[0] if words in problem.statement)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=1) as shared:
        yield shared


@pytest.mark.parametrize("name", CONTENT)
def test_rows_become_problems_whose_references_the_judge_accepts(
    name: str, judge: Judge, tmp_path: Path
) -> None:
    problems, decisions = imported(name)
    kinds, references, dropped = CONTENT[name]
    assert Counter(KINDS[type(problem.tests)] for problem in problems) == kinds
    assert Counter(decision.reason for decision in decisions) == dropped
    assert {decision.action for decision in decisions} <= {"drop"}
    pairs = [(problem, reference) for problem in problems for reference in problem.references]
    assert len(pairs) == references
    verdicts = [
        (p.statement[:40], j.verdict.value, j.reason)
        for (p, _), j in zip(pairs, judge.judge_many(pairs), strict=True)
    ]
    assert [verdict for verdict in verdicts if verdict[1] != "accepted"] == []
    write_problems(tmp_path / "p.parquet", problems)
    assert list(read_problems(tmp_path / "p.parquet")) == problems


@pytest.mark.parametrize("name", CONTENT)
def test_a_renamed_column_is_a_schema_error_with_the_revision_known_to_work(
    name: str, tmp_path: Path
) -> None:
    row = json.loads((FIXTURES / f"{name}.jsonl").read_text().splitlines()[0])
    column, source = TEST_COLUMN[name], source_named(name)
    row["test_suite"] = row.pop(column)
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(SchemaError) as error:
        imported(name, file)
    message = str(error.value)
    assert message.startswith(
        f"{file}, row 1: column `{column}` is missing, expected {source.columns[column]}"
    )
    assert "test_suite" in message.partition("columns found: ")[2]
    if source.hub_id is None:
        assert "revision" not in message
    else:
        assert message.endswith(f"; revision {source.revision} of {source.hub_id} is known to work")


@pytest.mark.parametrize(
    ("name", "column", "value", "words"),
    [
        ("deepcoder-taco", "problem", 3, "column `problem` is a int, expected the statement"),
        ("deepcoder-taco", "solutions", "x", "column `solutions` is a str, expected a list of programs"),
        (
            "primeintellect",
            "verification_info",
            [1],
            "column `verification_info` is a list, expected an object",
        ),
        ("taco", "input_output", {"inputs": []}, "column `input_output` is a dict, expected an object"),
        ("taco", "solutions", None, "column `solutions` is a NoneType, expected a list of programs"),
        ("areal", "input_output", 1, "column `input_output` is a int, expected an object"),
        ("code-r1", "prompt", [{"role": "system"}], "column `prompt` is a list without any, expected chat"),
        ("archer", "reward_model", 0, "column `reward_model` is a int, expected an object whose"),
        ("synthetic-1", "task_type", 1, "column `task_type` is a int, expected the kind of task"),
    ],
)
def test_a_value_of_another_type_is_a_schema_error(
    name: str, column: str, value: Any, words: str, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]
    for row in rows:
        row[column] = value
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SchemaError) as error:
        imported(name, file)
    assert str(error.value).startswith(f"{file}, row 1: {words}")


@pytest.mark.parametrize("name", ["primeintellect-python", "code-r1", "deepcoder-lcbv5"])
def test_rows_of_parquet_with_structures_are_the_same_problems(name: str, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    found = {problem.statement: problem for problem in imported(name, tmp_path / "rows.parquet")[0]}
    for problem in imported(name)[0]:
        assert found[problem.statement].tests == problem.tests
        assert found[problem.statement].references == problem.references


def test_the_decontaminated_edition_names_the_statement_otherwise(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FIXTURES / "primeintellect-python.jsonl").read_text().splitlines()]
    renamed = [{"problem": row.pop("problem_statement")} | row for row in rows]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in renamed))
    assert (
        imported("primeintellect-python", tmp_path / "rows.jsonl")[0] == imported("primeintellect-python")[0]
    )


def test_instructions_around_a_statement_are_taken_off() -> None:
    for name in ("deepcoder-primeintellect", "primeintellect", "verl"):
        for problem in imported(name)[0]:
            if "Two integers" in problem.statement:
                assert problem.statement.startswith("Two integers stand")
                assert problem.statement.endswith("Their sum.")
        called = problem_with(name, "doubled")
        assert called.statement == "Return a list with every number of `numbers` doubled."
        assert called.starter == "def doubled(numbers):\n\t\n"
    assert problem_with("code-r1", "doubled").statement.endswith("of `numbers` doubled.")
    assert problem_with("code-r1", "doubled").starter == "def doubled(numbers):\n"
    assert problem_with("areal", "Two integers").statement.startswith("Two integers stand")


def test_outputs_are_kept_as_they_are_and_inputs_get_plain_line_ends() -> None:
    for name in ("deepcoder-primeintellect", "primeintellect", "taco"):
        tests = problem_with(name, "Two integers").tests
        assert isinstance(tests, StdinTests)
        assert (tests.cases[0].input, tests.cases[0].output) == ("1 2\n", "3\r\n")


def test_limits_of_a_site_widen_ours_and_never_narrow_them() -> None:
    wide, narrow = (
        problem_with("primeintellect", "Two").limits,
        problem_with("primeintellect-python", "Two").limits,
    )
    assert (wide.cpu_s, wide.memory_mb) == (9.0, 2048.0)
    assert (narrow.cpu_s, narrow.memory_mb) == (6.0, 1024.0)
    assert problem_with("deepcoder-codeforces", "smaller").limits.cpu_s == 12.0


def test_references_that_cannot_be_judged_are_counted() -> None:
    left_out = problem_with("deepcoder-taco", "Two integers").meta["references_left_out"]
    assert left_out == {"python2": 2}
    assert problem_with("primeintellect", "Two").references[0].language == "python"
    cpp = next(p for p in imported("primeintellect")[0] if p.language != "python")
    assert (cpp.language, cpp.references[0].language) == ("cpp17", "cpp17")


def test_what_is_known_of_a_problem_is_kept() -> None:
    meta = problem_with("taco", "Two integers").meta
    assert meta["contest_date"] == "2019-12-31"
    assert meta["tags"] == ["Mathematics"]
    assert meta["skills"] == ["Greedy algorithms"]
    assert problem_with("taco", "doubled").meta["pictures"] == 1
    assert problem_with("deepcoder-codeforces", "smaller").meta["tags"] == ["math", "*800"]
    assert [problem.id for problem in imported("taco-verified")[0]] == [
        f"taco-verified/{n}" for n in range(3)
    ]

"""Export formats: rows that other trainers read, counted refusals, and the way back through the importers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Compare,
    Problem,
    Program,
    StandardChecker,
    StdinCase,
    StdinTests,
)
from whetstone.data.dataset import DatasetWriter, load_problems
from whetstone.data.export_formats import VERL, NotRepresentable, export_format_named, write_export
from whetstone.data.files import write_problems
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import import_rows
from whetstone.data.sources.table import source_named

ADD = Problem(
    "set/add",
    "Read two numbers and print their sum.",
    StdinTests([StdinCase("1 2\n", "3\n"), StdinCase("4 5", "9")]),
    references=[Program("cpp", "int main() {}"), Program("python", "print(sum(map(int, input().split())))")],
    source="deepcoder-taco",
    meta={"original_id": "17", "difficulty": "easy"},
)
CALL = Problem(
    "set/call",
    "Return the pair in the other order.",
    CallTests([CallCase([2, 1], [[1, 2]]), CallCase(["b", "a\nä"], [["a\nä", "b"]])], "swap"),
    starter="def swap(pair):\n    ...\n",
    source="apps",
)
METHOD = Problem(
    "set/method",
    "Add.",
    CallTests([CallCase(3, [1, 2])], "add", class_="Solution"),
    starter="class Solution:\n    def add(self, a, b):\n        ...\n",
    references=[Program("python", "class Solution:\n    def add(self, a, b):\n        return a + b\n")],
)
ASSERTS = Problem("set/asserts", "Write f.", AssertTests(asserts=["assert f(1) == 2"], entry_point="f"))


def rows(problems: list[Problem], export_format: str, folder: Path, **options: Any) -> list[dict[str, Any]]:
    write_problems(folder / "set.jsonl", problems)
    write_export(
        str(folder / "set.jsonl"), folder / "out.parquet", export_format_named(export_format), **options
    )
    return pq.read_table(folder / "out.parquet").to_pylist()


def test_verl_rows_hold_a_chat_and_columns_of_tests(tmp_path: Path) -> None:
    add, call = rows([ADD, CALL], "verl", tmp_path)
    assert list(add) == ["data_source", "prompt", "ability", "reward_model", "extra_info"]
    assert add["data_source"] == "taco"
    assert [message["role"] for message in add["prompt"]] == ["user"]
    assert ADD.statement in add["prompt"][0]["content"]
    assert add["reward_model"]["style"] == "rule"
    assert json.loads(add["reward_model"]["ground_truth"]) == {
        "inputs": ["1 2\n", "4 5"],
        "outputs": ["3\n", "9"],
    }
    assert add["extra_info"] == {
        "split": "train",
        "index": 0,
        "id": "set/add",
        "reference": ADD.references[1].source,
    }
    assert call["data_source"] == "apps"
    assert "def swap(pair):" in call["prompt"][0]["content"]
    assert json.loads(call["reward_model"]["ground_truth"]) == {
        "inputs": ["[1, 2]", '["a\\nä", "b"]'],
        "outputs": ["[2, 1]", '["b", "a\\nä"]'],
        "fn_name": "swap",
    }


def test_verl_takes_every_problem_whole_for_a_reward_of_ones_own(tmp_path: Path) -> None:
    found = rows([ADD, ASSERTS], "verl-whole", tmp_path)
    assert [row["data_source"] for row in found] == ["whetstone", "whetstone"]
    truths = [json.loads(row["reward_model"]["ground_truth"]) for row in found]
    assert [truth["id"] for truth in truths] == ["set/add", "set/asserts"]


def test_trl_rows_hold_a_chat_and_the_whole_problem(tmp_path: Path) -> None:
    problems = [ADD, CALL, METHOD, ASSERTS]
    found = rows(problems, "trl", tmp_path)
    write_problems(tmp_path / "back.jsonl", problems)
    (tmp_path / "columns.jsonl").write_text("".join(row["problem"] + "\n" for row in found))
    assert load_problems(tmp_path / "columns.jsonl") == load_problems(tmp_path / "back.jsonl")
    assert all(row["prompt"][0]["role"] == "user" for row in found)


def test_the_importer_reads_back_the_same_tests(tmp_path: Path) -> None:
    problems = [ADD, CALL, METHOD]
    rows(problems, "verl", tmp_path)
    back = list(import_rows(source_named("verl"), read_rows([tmp_path / "out.parquet"])))
    assert [problem.tests for problem in back if isinstance(problem, Problem)] == [p.tests for p in problems]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.lists(JSON, min_size=1, max_size=3), JSON), min_size=1, max_size=4))
def test_verl_writes_any_arguments_one_value_a_line(cases: list[tuple[list[Any], Any]]) -> None:
    tests = CallTests([CallCase(expected, args) for args, expected in cases], "f")
    row = VERL.row(Problem("p", "?", tests), "train", 0)
    truth = json.loads(row["reward_model"]["ground_truth"])
    # As prime_code reads them.
    read = [[json.loads(line) for line in text.split("\n")] for text in truth["inputs"]]
    assert list(zip(read, map(json.loads, truth["outputs"]), strict=True)) == cases


NO_ROW = [
    (ASSERTS, "assert tests"),
    (Problem("p", "?", ADD.tests, checker=StandardChecker("wcmp")), "a checker decides"),
    (Problem("p", "?", ADD.tests, compare=Compare("floats")), "compare mode floats"),
    (Problem("p", "?", ADD.tests, language="cpp"), "programs in cpp"),
    (Problem("p", "?", CallTests([CallCase(1, [], {"a": 1})], "f")), "keyword"),
    (Problem("p", "?", CallTests([CallCase(1)], "f")), "calls without arguments"),
    (Problem("p", "?", CallTests([CallCase([None], [[]], {}, ["A"])], class_="A")), "operations"),
    (Problem("p", "?", CallTests([CallCase(1, [1])], "f", class_="A")), "not called Solution"),
]


def test_a_problem_that_verl_cannot_hold_is_refused() -> None:
    for problem, reason in NO_ROW:
        with pytest.raises(NotRepresentable, match=reason):
            VERL.row(problem, "train", 0)


def test_refusals_are_counted_and_write_nothing_unless_skipped(tmp_path: Path) -> None:
    write_problems(tmp_path / "set.jsonl", [ADD, ASSERTS, CALL])
    target = tmp_path / "out.parquet"
    with pytest.raises(UserError, match=r"cannot carry 1 problems \(1 assert tests\).*--skip"):
        write_export(str(tmp_path / "set.jsonl"), target, VERL)
    assert not target.exists()
    written = write_export(str(tmp_path / "set.jsonl"), target, VERL, skip=True)
    assert (written.files, written.left_out) == ({str(target): 2}, {"assert tests": 1})
    assert [r["extra_info"]["index"] for r in pq.read_table(target).to_pylist()] == [0, 1]


def test_a_dataset_gives_a_file_for_each_split(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "set") as writer:
        writer.add(ADD)
        writer.add(CALL, "validation")
    written = write_export(str(tmp_path / "set"), tmp_path / "verl", VERL)
    assert written.files == {
        str(tmp_path / "verl" / "train.parquet"): 1,
        str(tmp_path / "verl" / "validation.parquet"): 1,
    }
    [row] = pq.read_table(tmp_path / "verl" / "validation.parquet").to_pylist()
    assert row["extra_info"]["split"] == "validation"
    with pytest.raises(UserError, match="has splits"):
        write_export(str(tmp_path / "set"), tmp_path / "one.parquet", VERL)
    one = write_export(f"{tmp_path / 'set'}:train", tmp_path / "one.parquet", VERL)
    assert list(one.files.values()) == [1]


def test_an_unknown_export_format_suggests_the_closest() -> None:
    with pytest.raises(UserError, match="did you mean `verl-whole`"):
        export_format_named("verl_whole")

"""Rows of every source become the expected problems, which the judge agrees with and files hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_rows import (
    SOURCE_FIXTURES,
    expected_file,
    imported,
    lines_of,
    rows_of,
    set_testlib,
)
from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, Problem, Program
from whetstone.data.files import read_problems, write_problems
from whetstone.data.sources.plus_tests import plus_inputs, plus_tests, with_python_types
from whetstone.data.sources.source import SchemaError
from whetstone.data.sources.table import source_named
from whetstone.judge import Judge

# A wrong program for each problem that has one here. Those in `RIGHT` come without references.
WRONG = {
    "humaneval/0": "def root(x):\n    return x / 2",
    "mbpp/2": "def doubled(items):\n    return items + items",
    "mbpp-full/601": "def larger(a, b):\n    return a if a < b else b",
    "mbpp-full/11": "def larger(a, b):\n    return a if a < b else b",
    "humanevalplus/0": "def root(x):\n    return 2.0",
    "humanevalplus/32": "def find_zero(xs):\n    return -0.5",
    "mbppplus/2": "def similar_elements(left, right):\n    return (4, 5)",
    "mbppplus/3": "def minimum(a, b):\n    return 1",
    "mbppplus/404": "def minimum(a, b):\n    return b if b < a else 1",
    "mbppplus/600": "def minimum(a, b):\n    return b",
    "leetcode/pair-sum": "class Solution:\n    def pairSum(self, nums, target): return [1, 0]",
    "leetcode/reverse-it": "class Solution:\n    def reverseIt(self, head):\n        return head",
    "livecodebench/1_A": "a, b = map(int, input().split())\nprint(abs(a) + b)",
    "livecodebench/3001": "class Solution:\n    def shifted(self, nums, by):\n        return nums",
    "livecodebench/1_B": "print(2)",
    "bigcodebench-hard/13": "def task_func(words):\n    return {word: 1 for word in words}",
    "code_contests/1_A. Sum": "print(3)",
    "acecode/oss_1": "def count_even(numbers):\n    return len(numbers)",
    "acecode/bigcode_python_fns_2": "def widen(text):\n    return text",
    "open-r1-codeforces/4/A": "print(0, input())",
    "open-r1-codeforces/4/B": "print(2)",
    "rstar-coder/seed_1": "print(sum(map(int, input().split())))",
    "rstar-coder/seed_2": "class Solution:\n    def rotated(self, nums, by):\n        return nums",
    "synthetic-2/prime_rl_code_7": "print(input())",
    "synthetic-2/prime_rl_code_8": "def thrice(n):\n    return n",
}
RIGHT = {
    "livecodebench/1_A": "print(sum(map(int, input().split())))",
    "livecodebench/3001": "class Solution:\n    def shifted(self, nums: List[int], by: int):\n"
    "        return [n + by for n in nums]",
    "livecodebench/1_B": "print(1)",
    "acecode/bigcode_python_fns_2": "def widen(text):\n    return ' '.join(text)",
    "open-r1-codeforces/4/A": "n = int(input())\nprint(1, n - 1)",
    "open-r1-codeforces/4/B": "print(1)",
    "rstar-coder/seed_1": "a, b = map(int, input().split())\nprint(a * b)",
    "rstar-coder/seed_2": "class Solution:\n    def rotated(self, nums: List[int], by: int) -> List[int]:\n"
    "        return nums[by:] + nums[:by]",
    "synthetic-2/prime_rl_code_7": "print(input()[::-1])",
    "synthetic-2/prime_rl_code_8": "def thrice(n):\n    return 3 * n",
}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=1, stop_at_first_failure=True) as judge:
        yield judge


@pytest.fixture(autouse=True)
def testlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHETSTONE_TESTLIB", "")
    set_testlib(tmp_path)


def written(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def problem_of(name: str, fixture: str, problem_id: str) -> Problem:
    return next(p for p in imported(name, fixture)[0] if p.id == problem_id)


@pytest.mark.parametrize(("name", "fixture"), SOURCE_FIXTURES)
def test_rows_become_the_expected_problems_which_files_hold(name: str, fixture: str, tmp_path: Path) -> None:
    assert lines_of(name, fixture) == expected_file(name, fixture).read_text(encoding="utf-8")
    problems, decisions = imported(name, fixture)
    write_problems(tmp_path / "problems.parquet", problems)
    assert list(read_problems(tmp_path / "problems.parquet")) == problems
    assert all(one.action == "drop" and one.detail and one.source == name for one in decisions)


@pytest.mark.drawn(10)
@pytest.mark.process
@pytest.mark.parametrize(("name", "fixture"), SOURCE_FIXTURES)
def test_the_judge_accepts_references_and_rejects_wrong_programs(
    name: str, fixture: str, judge: Judge
) -> None:
    for problem in imported(name, fixture)[0]:
        written_here = [RIGHT[problem.id]] if problem.id in RIGHT else []
        right = problem.references or [Program(problem.language, source) for source in written_here]
        if any(program.language.startswith("cpp") for program in right) and not shutil.which("g++"):
            pytest.skip("no C++ compiler")
        judged = [judge.judge(problem, program) for program in right]
        assert [(j.verdict.value, j.reason) for j in judged if not j.accepted] == [], problem.id
        known_wrong = [WRONG[problem.id]] if problem.id in WRONG else []
        wrong = [*problem.wrong, *(Program("python", source) for source in known_wrong)]
        assert not any(judge.judge(problem, program).accepted for program in wrong), problem.id


@pytest.mark.parametrize(("name", "fixture"), SOURCE_FIXTURES)
def test_a_renamed_column_is_a_schema_error_with_the_revision_known_to_work(
    name: str, fixture: str, tmp_path: Path
) -> None:
    source = source_named(name)
    for column, values in source.columns.items():
        row = {key: value for key, value in rows_of(fixture)[0].items() if key not in column.split(" or ")}
        file = written(tmp_path, [{**row, "renamed": 1}])
        with pytest.raises(SchemaError) as error:
            imported(name, file)
        message = str(error.value)
        assert message.startswith(f"{file}, row 1: column `{column}` is missing, expected {values}")
        assert "renamed" in message.partition("columns found: ")[2]
        known = f"; revision {source.revision} of {source.hub_id} is known to work"
        assert message.endswith(known) if source.revision else "revision" not in message


# A fixture, changed fields of its rows, and the error.
OTHER_VALUES: list[tuple[str, str, dict[str, Any], str]] = [
    ("apps", "apps.jsonl", {"input_output": None}, "`input_output` is a NoneType, expected an object with"),
    ("apps", "apps.jsonl", {"question": 3}, "`question` is a int, expected the statement"),
    (
        "apps",
        "apps.jsonl",
        {"solutions": 5},
        "`solutions` is a int, expected a list of programs, as",
    ),
    ("deepcoder-taco", "deepcoder-taco.jsonl", {"problem": 3}, "`problem` is a int, expected the statement"),
    (
        "deepcoder-taco",
        "deepcoder-taco.jsonl",
        {"solutions": "x"},
        "`solutions` is a str, expected a list of",
    ),
    (
        "primeintellect",
        "primeintellect.jsonl",
        {"verification_info": [1]},
        "`verification_info` is a list, exp",
    ),
    ("taco", "taco.jsonl", {"input_output": {"inputs": []}}, "`input_output` is a dict, expected an object"),
    ("taco", "taco.jsonl", {"solutions": None}, "`solutions` is a NoneType, expected a list of programs"),
    ("areal", "areal.jsonl", {"input_output": 1}, "`input_output` is a int, expected an object"),
    (
        "code-r1",
        "code-r1.jsonl",
        {"prompt": [{"role": "system"}]},
        "`prompt` is a list without any, expected",
    ),
    ("archer", "archer.jsonl", {"reward_model": 0}, "`reward_model` is a int, expected an object whose"),
    ("synthetic-1", "synthetic-1.jsonl", {"task_type": 1}, "`task_type` is a int, expected the kind of task"),
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
    ("humaneval", "humaneval.jsonl", {"prompt": None}, "`prompt` is a NoneType, expected imports, helpers"),
    ("mbpp", "mbpp.json", {"task_id": "two"}, "`task_id` is a str, expected a number"),
    ("mbpp", "mbpp.json", {"test_list": []}, "`test_list` is an empty list, expected a list of asserts"),
    ("mbpp", "mbpp.json", {"code": "def ("}, "`code` is not Python code"),
    ("mbpp", "mbpp.json", {"code": "def other(): pass"}, "`test_list` is without them, expected asserts"),
    ("humanevalplus", "humanevalplus.jsonl", {"plus_input": [1]}, "`plus_input` is a list of other things"),
    ("mbppplus", "mbppplus.jsonl", {"atol": "0"}, "`atol` is a str, expected a number"),
    ("aethercode", "aethercode.jsonl", {"time_limit": "1 s"}, "`time_limit` is '1 s', expected a positive"),
]


def test_a_value_of_another_type_is_a_schema_error_with_its_place(tmp_path: Path) -> None:
    for name, fixture, change, words in OTHER_VALUES:
        file = written(tmp_path, [row | change for row in rows_of(fixture)])
        with pytest.raises(SchemaError) as error:
            imported(name, file)
        assert str(error.value).startswith(f"{file}, row 1: column {words}")


def test_rows_of_parquet_with_structures_are_the_same_problems(tmp_path: Path) -> None:
    for name in ("primeintellect-python", "code-r1", "deepcoder-lcbv5"):
        pq.write_table(pa.Table.from_pylist(rows_of(f"{name}.jsonl")), tmp_path / "rows.parquet")
        found = {problem.statement: problem for problem in imported(name, tmp_path / "rows.parquet")[0]}
        for problem in imported(name, f"{name}.jsonl")[0]:
            assert found[problem.statement].tests == problem.tests
            assert found[problem.statement].references == problem.references


def test_the_decontaminated_edition_may_name_the_statement_problem(tmp_path: Path) -> None:
    rows = rows_of("primeintellect-python.jsonl")
    file = written(tmp_path, [{"problem": row.pop("problem_statement")} | row for row in rows])
    name = "primeintellect-python"
    assert imported(name, file)[0] == imported(name, "primeintellect-python.jsonl")[0]


def test_inputs_of_the_plus_releases_are_read_as_python_values() -> None:
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


def test_types_and_signs_of_the_inputs_of_mbpp_plus_are_those_of_its_own_reader() -> None:
    inputs_read: list[tuple[int, list[Any], list[Any]]] = [
        (2, [[[1, 2], [3]]], [[(1, 2), (3,)]]),
        (115, [[[[1], [], {"a": 1}, None]]], [[[{1}, {}, {}, {}]]]),
        (124, [["1", "-0-1j"]], [[1.0, complex(-0.0, -1.0)]]),
        (252, [["-3j"], ["1e999-1j"]], [[complex(0.0, -3.0)], [complex(float("inf"), -1.0)]]),
        (3, [[[1, 2], "3"]], [[[1, 2], "3"]]),
    ]
    for number, inputs, read in inputs_read:
        typed = with_python_types(number, inputs)
        assert repr(typed) == repr(read)
        parts = plus_inputs(plus_tests("f", "def f(*a): return 0", typed, typed, 0.0))
        assert parts is not None
        assert repr(parts.base) == repr(parts.plus) == repr(read)


MINE = source_named("apps")


def test_a_source_of_an_installed_package_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", f"{__name__}:MINE", "whetstone.sources")
    monkeypatch.setattr("whetstone.data.sources.table._INSTALLED", EntryPoints([entry]))
    assert source_named("mine") is MINE


TESTLIB = """
#pragma once
#include <cstdio>
#include <cstdlib>
#include <fstream>
struct Reader { std::ifstream in; int readInt() { int n; if (!(in >> n)) std::exit(2); return n; } };
static Reader inf, ouf, ans;
enum { _ok = 0, _wa = 1 };
inline void registerTestlibCmd(int, char** argv) { inf.in.open(argv[1]); ouf.in.open(argv[2]); }
inline void quitf(int code, const char*) { std::exit(code); }
"""


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_aethercode_is_judged_by_its_checkers_with_a_testlib_that_is_given(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHETSTONE_TESTLIB")
    with pytest.raises(UserError, match=r"testlib\.h: get it from .*WHETSTONE_TESTLIB="):
        imported("aethercode", "aethercode.jsonl")
    (tmp_path / "testlib.h").write_text(TESTLIB)
    monkeypatch.setenv("WHETSTONE_TESTLIB", str(tmp_path / "testlib.h"))
    checked = imported("aethercode", "aethercode.jsonl")[0][0]
    program = "#include <iostream>\nint main() {{ int n; std::cin >> n; std::cout << {}; }}"
    texts = ["n - 1 << ' ' << 1", "n << ' ' << 1", "'x'"]
    verdicts = [judge.judge(checked, Program("cpp", program.format(text))).verdict.value for text in texts]
    assert verdicts == ["accepted", "wrong_answer", "wrong_answer"]

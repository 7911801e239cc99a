"""Benchmarks and sets with checkers: rows in their schemas become problems that the judge agrees with."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    Problem,
    Program,
    ProgramChecker,
    StdinTests,
)
from whetstone.data.decisions import ProblemDecision
from whetstone.data.files import read_problems, write_problems
from whetstone.data.input_validator import validator_of
from whetstone.data.sources.plus_tests import plus_inputs
from whetstone.data.sources.pytest_tests import pytest_tests
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import SchemaError, Skip, import_rows
from whetstone.data.sources.table import source_named
from whetstone.judge import Judge

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
    (
        "leetcode",
        "leetcode.jsonl",
        {
            "leetcode/pair-sum": "class Solution:\n    def pairSum(self, nums, target): return [1, 0]",
            "leetcode/reverse-it": "class Solution:\n    def reverseIt(self, head):\n        return head",
        },
    ),
    (
        "livecodebench",
        "livecodebench.jsonl",
        {
            "livecodebench/1_A": "a, b = map(int, input().split())\nprint(abs(a) + b)",
            "livecodebench/3001": "class Solution:\n    def shifted(self, nums, by):\n        return nums",
            "livecodebench/1_B": "print(2)",
        },
    ),
    (
        "bigcodebench-hard",
        "bigcodebench.jsonl",
        {"bigcodebench-hard/13": "def task_func(words):\n    return {word: 1 for word in words}"},
    ),
    ("code_contests", "code_contests.jsonl", {"code_contests/1_A. Sum": "print(3)"}),
    ("kodcode", "kodcode.jsonl", {"kodcode/Prefill_1_I": "def halve(number):\n    return number // 2"}),
    (
        "open-r1-codeforces",
        "open_r1_codeforces.jsonl",
        {"open-r1-codeforces/4/A": "print(0, input())", "open-r1-codeforces/4/B": "print(2)"},
    ),
    (
        "kattis",
        "kattis",
        {
            "kattis/groups": "print(2 * float(input()) + 0.1)",
            "kattis/guess": "print(9)",
            "kattis/split": "print(input())",
        },
    ),
]
# Programs for problems that come without references.
RIGHT = {
    "livecodebench/1_A": "print(sum(map(int, input().split())))",
    "livecodebench/3001": "class Solution:\n    def shifted(self, nums: List[int], by: int):\n"
    "        return [n + by for n in nums]",
    "livecodebench/1_B": "print(1)",
    "open-r1-codeforces/4/A": "n = int(input())\nprint(1, n - 1)",
    "open-r1-codeforces/4/B": "print(1)",
}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=1, stop_at_first_failure=True) as judge:
        yield judge


def imported(name: str, file: Path) -> tuple[list[Problem], list[ProblemDecision]]:
    source = source_named(name)
    results = list(import_rows(source, source.read(file) if source.read else read_rows([file])))
    problems = [result for result in results if isinstance(result, Problem)]
    return problems, [result for result in results if isinstance(result, ProblemDecision)]


def problem_of(name: str, fixture: str, problem_id: str) -> Problem:
    return next(p for p in imported(name, FIXTURES / fixture)[0] if p.id == problem_id)


@pytest.mark.parametrize(("name", "fixture", "wrong"), CASES, ids=[fixture for _, fixture, _ in CASES])
def test_the_judge_accepts_references_and_refuses_wrong_programs_and_files_hold_all_of_it(
    name: str, fixture: str, wrong: dict[str, str], judge: Judge, tmp_path: Path
) -> None:
    problems, _ = imported(name, FIXTURES / fixture)
    assert [problem.id for problem in problems] == list(wrong)
    for problem in problems:
        if any(program.language == "cpp" for program in problem.references) and not shutil.which("g++"):
            pytest.skip("no C++ compiler")
        right = problem.references or [Program(problem.language, RIGHT[problem.id])]
        verdicts = [judge.judge(problem, program).verdict.value for program in right]
        assert verdicts == ["accepted"] * len(right), problem.id
        known_wrong = [*problem.wrong, Program("python", wrong[problem.id])]
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
        ("mbpp", "mbpp.json", {"code": "def ("}, "`code` is not Python code"),
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


@pytest.mark.parametrize(
    ("name", "fixture"), [(name, fixture) for name, fixture, _ in CASES if name != "kattis"]
)
def test_a_renamed_column_is_a_schema_error_with_what_was_expected(
    name: str, fixture: str, tmp_path: Path
) -> None:
    source = source_named(name)
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


@pytest.mark.parametrize(
    ("name", "fixture", "reasons"),
    [
        ("mbppplus", "mbppplus.jsonl", []),
        ("leetcode", "leetcode.jsonl", ["malformed_tests"]),
        ("code_contests", "code_contests.jsonl", ["reads_files", "no_tests"]),
        ("kodcode", "kodcode.jsonl", ["needs_pytest", "captures_output"]),
        ("open-r1-codeforces", "open_r1_codeforces.jsonl", ["interactive", "reads_files", "no_tests"]),
        ("kattis", "kattis", ["broken_yaml"]),
    ],
)
def test_a_row_that_cannot_be_judged_is_dropped_with_its_reason(
    name: str, fixture: str, reasons: list[str]
) -> None:
    _, decisions = imported(name, FIXTURES / fixture)
    assert [decision.reason for decision in decisions] == reasons
    assert all(decision.detail and decision.source == name for decision in decisions)


def test_leetcode_is_called_with_values_and_its_lists_stay_objects() -> None:
    values = problem_of("leetcode", "leetcode.jsonl", "leetcode/pair-sum")
    nodes = problem_of("leetcode", "leetcode.jsonl", "leetcode/reverse-it")
    assert isinstance(values.tests, CallTests)
    assert values.tests.cases[0].kwargs == {"nums": [2, 7, 11], "target": 9}
    assert (values.meta["difficulty"], values.meta["contest_date"]) == ("easy", "2024-08-04")
    assert isinstance(nodes.tests, AssertTests)
    assert "class ListNode" in (nodes.starter or "")
    assert "Solution().reverseIt(head=list_node([1, 2, 3]))" in (nodes.tests.asserts or [])[0]


def test_livecodebench_joins_public_and_private_tests_and_keeps_their_number() -> None:
    problem = problem_of("livecodebench", "livecodebench.jsonl", "livecodebench/1_A")
    assert isinstance(problem.tests, StdinTests)
    assert [case.input for case in problem.tests.cases] == ["1 2\n", "3 4\n", "-1 1"]
    assert (problem.meta["public_tests"], problem.meta["contest_date"]) == (1, "2024-08-03")


def test_code_contests_takes_over_programs_that_run_and_counts_the_others() -> None:
    problem = problem_of("code_contests", "code_contests.jsonl", "code_contests/1_A. Sum")
    assert isinstance(problem.tests, StdinTests)
    assert problem.tests.cases[2].input == "5 5\n"
    assert [program.language for program in problem.references] == ["python", "cpp"]
    assert len(problem.wrong) == 1
    assert problem.meta["references_left_out"] == {"python2": 1}
    assert (problem.meta["platform"], problem.meta["difficulty"], problem.limits.cpu_s) == (
        "codeforces",
        "B",
        7.5,
    )


def test_pytest_functions_become_cases_each() -> None:
    tests = problem_of("kodcode", "kodcode.jsonl", "kodcode/Prefill_1_I").tests
    assert isinstance(tests, AssertTests)
    assert len(tests.asserts or []) == 4
    assert "import pytest" not in tests.setup


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import pytest\n@pytest.mark.skip\ndef test_a(): pass", "needs_pytest"),
        ("def test_a(tmp_path): pass", "needs_pytest"),
        ("import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self): pass", "needs_pytest"),
        ("def test_a():\n    import solution\n    solution.f()", "needs_pytest"),
        ("async def test_a(): pass", "needs_pytest"),
        ("def helper(): pass", "malformed_tests"),
        ("def test_a(:", "malformed_tests"),
    ],
)
def test_what_needs_more_of_pytest_is_refused(module: str, reason: str) -> None:
    with pytest.raises(Skip) as skip:
        pytest_tests(module)
    assert skip.value.reason == reason


def test_kattis_packages_keep_validators_flags_limits_and_groups() -> None:
    split = problem_of("kattis", "kattis", "kattis/split")
    assert isinstance(split.checker, ProgramChecker)
    assert split.checker.arguments == ["positive"]
    assert split.checker.source.count("#include <fstream>") == 1  # the header, in its place and once
    assert split.meta["references_left_out"] == {"hs": 1, "python2": 1}
    groups = problem_of("kattis", "kattis", "kattis/groups")
    assert (groups.compare.mode, groups.compare.abs, groups.limits.cpu_s) == ("kattis", 1e-3, 2.5)
    assert [(group.cases, group.weight) for group in groups.scoring.groups] == [([0, 1], 30), ([0, 2, 3], 70)]
    assert isinstance(problem_of("kattis", "kattis", "kattis/guess").tests, InteractiveTests)
    validator = validator_of(groups)
    assert validator is not None
    assert validator.language == "python"
    assert validator.arguments == [["least=-10", "most=10"], ["least=0", "most=10"], []]
    assert validator_of(split) is None


def test_a_kattis_package_may_be_zipped(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "split.zip", "w") as archive:
        for file in sorted((FIXTURES / "kattis" / "split").rglob("*")):
            archive.write(file, Path("inner") / file.relative_to(FIXTURES / "kattis" / "split"))
    zipped, _ = imported("kattis", tmp_path / "split.zip")
    assert zipped == [problem_of("kattis", "kattis", "kattis/split")]
    with pytest.raises(UserError, match="neither a package"):
        imported("kattis", tmp_path / "absent")


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


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_aethercode_is_judged_by_its_checkers_with_a_testlib_that_is_given(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FIXTURES / "aethercode.jsonl"
    monkeypatch.delenv("WHETSTONE_TESTLIB", raising=False)
    with pytest.raises(UserError, match=r"testlib\.h: get it from .*WHETSTONE_TESTLIB="):
        imported("aethercode", file)
    (tmp_path / "testlib.h").write_text(TESTLIB)
    monkeypatch.setenv("WHETSTONE_TESTLIB", str(tmp_path / "testlib.h"))
    (checked, plain), _ = imported("aethercode", file)
    assert (checked.language, checked.limits.cpu_s, checked.limits.memory_mb) == ("cpp", 1.0, 256.0)
    assert checked.meta["contest_date"] == "2024-11-17"
    assert plain.checker is None
    program = "#include <iostream>\nint main() {{ int n; std::cin >> n; std::cout << {}; }}"
    texts = ["n - 1 << ' ' << 1", "n << ' ' << 1", "'x'"]
    verdicts = [judge.judge(checked, Program("cpp", program.format(text))).verdict.value for text in texts]
    assert verdicts == ["accepted", "wrong_answer", "wrong_answer"]
    renamed = rewritten("aethercode.jsonl", tmp_path, {"time_limit": "1 s"})
    with pytest.raises(SchemaError, match="`time_limit` is '1 s', expected a positive number"):
        imported("aethercode", renamed)

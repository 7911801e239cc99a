"""Honest programs that need much: long inputs and outputs, deep recursion, big numbers, many threads."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import python, stdin_problem
from whetstone.judge import Judge

DATA = data_beside(__file__)

# Long enough for a busy machine: what is tested is that size alone is no reason to fail.
AMPLE = {"cpu_s": 20.0, "memory_mb": 1024.0, "output_mb": 32.0}


def ample(given: str, wanted: str, **fields: Any) -> dict[str, Any]:
    return stdin_problem((given, wanted), limits=AMPLE, **fields)


@pytest.mark.parametrize(
    "source",
    DATA["readers"],
)
def test_an_input_of_fifty_megabytes_arrives_whole(judge: Judge, source: str) -> None:
    given = ("1234567 " * 500 + "\n") * 12500
    judgement = judge.judge(ample(given, f"{len(given)} {500 * 12500}"), python(source))
    assert len(given) > 50_000_000
    assert judgement.accepted, judgement


def test_an_output_of_ten_megabytes_arrives_whole(judge: Judge) -> None:
    wanted = "\n".join(map(str, range(1_400_000)))
    for source in (
        "print('\\n'.join(map(str, range(1400000))))",
        "import sys\nw = sys.stdout.write\nfor i in range(1400000): w(f'{i}\\n')",
        "import os\ndata = '\\n'.join(map(str, range(1400000))).encode()\nat = 0\nwhile at < len(data): at += os.write(1, data[at:])",
    ):
        judgement = judge.judge(ample("", wanted), python(source))
        assert len(wanted) > 10_000_000
        assert judgement.accepted, judgement


DEEP: dict[str, str] = DATA["deep"]


@pytest.mark.parametrize("style", DEEP)
def test_depth_alone_is_no_failure(judge: Judge, style: str) -> None:
    judgement = judge.judge(ample("", "100000"), python(DEEP[style]))
    assert judgement.accepted, judgement


_DOWN = "f(self, n):\n        return 0 if n == 0 else 1 + self.f(n - 1)\n"


@pytest.mark.parametrize(
    ("source", "accepted"),
    [
        (f"class Solution:\n    def {_DOWN}", True),
        (f"class Solution:\n    @cache\n    def {_DOWN}", True),
        (f"import sys\nsys.setrecursionlimit(2000)\nclass Solution:\n    def {_DOWN}", False),
        ("class Solution:\n    def f(self, n):\n        return self.f(n)\n", False),
        ("def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\n", False),
    ],
)
def test_a_class_may_recurse_as_deep_as_at_leetcode(judge: Judge, source: str, accepted: bool) -> None:
    cases = [{"args": [depth], "expected": depth} for depth in (5000, 20_000)]
    tests: dict[str, Any] = {"kind": "call", "function": "f", "cases": cases}
    if "class" in source:
        tests["class"] = "Solution"
    judgement = judge.judge({"id": "deep", "statement": "", "tests": tests}, python(source))
    assert judgement.accepted is accepted, judgement
    assert accepted or "RecursionError" in judgement.reason


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("print(10**100000)", "1" + "0" * 100000),
        ("print(int(input()) + 1)", "1" + "0" * 100000),
        (
            "import decimal\ndecimal.getcontext().prec = 120000\nprint(decimal.Decimal(input()) + 1)",
            "1" + "0" * 100000,
        ),
        ("import sys\nsys.set_int_max_str_digits(0)\nprint(int(sys.stdin.read()) + 1)", "1" + "0" * 100000),
        (
            "x = int(input()) + 1\nprint(f'{x}'.count('0'), str(x)[0], '%d' % (x // 10**99995))",
            "100000 1 100000",
        ),
    ],
)
def test_integers_have_no_largest_digit(judge: Judge, source: str, wanted: str) -> None:
    judgement = judge.judge(ample("9" * 100000 + "\n", wanted), python(source))
    assert judgement.accepted, judgement


def test_address_space_that_is_only_reserved_is_no_memory(judge: Judge) -> None:
    source = "import mmap\nm = mmap.mmap(-1, 3 << 30)\nm[0] = 1\nprint(m[0])"
    problem = stdin_problem(("", "1"))
    assert problem["limits"]["memory_mb"] < 1024
    assert judge.judge(problem, python(source)).accepted


def test_many_threads_and_queues(judge: Judge) -> None:
    source = DATA["source"]
    assert judge.judge(ample("", "999000"), python(source)).accepted


def test_a_case_may_be_large_while_others_are_small(judge: Judge) -> None:
    source = "import sys\nprint(len(sys.stdin.read().split()))"
    problem = stdin_problem(("1 2", "2"), ("7 " * 2_000_000, "2000000"), ("", "0"), limits=AMPLE)
    assert judge.judge(problem, python(source)).accepted

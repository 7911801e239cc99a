"""A function of a ``call`` test gets the names that ``class Solution`` gets, and must define its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.beside import data_beside
from whetstone.core.problem import CallCase, CallTests, Problem, Program
from whetstone.judge import Judge, Verdict

DATA = data_beside(__file__)

PROGRAMS = DATA["programs"]


def problem(function: str | None = "f", expected: Any = 3, **fields: Any) -> Problem:
    tests = CallTests([CallCase(expected=expected, args=[[2]])] * 2, function=function, **fields)
    return Problem("p", "", tests)


def verdict(judge: Judge, asked: Problem, source: str) -> Verdict:
    return judge.judge(asked, Program("python", source)).verdict


@pytest.mark.process
@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS)
def test_a_function_need_not_import_common_names(judge: Judge, source: str) -> None:
    assert verdict(judge, problem(), source) is Verdict.ACCEPTED
    # The same program as a method, which always got these names.
    body = source + "\n\nclass Solution:\n    def f(self, n):\n        return f(n)\n"
    method = Problem("p", "", CallTests([CallCase(expected=3, args=[[2]])], function="f", class_="Solution"))
    assert verdict(judge, method, body) is Verdict.ACCEPTED


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "args", "expected"), [("gcd", [4, 6], 2), ("floor", [1.5], 1), ("prod", [[2, 3]], 6)]
)
def test_a_provided_name_is_not_the_function_under_test(
    judge: Judge, name: str, args: list[Any], expected: Any
) -> None:
    asked = Problem("p", "", CallTests([CallCase(expected=expected, args=args)], function=name))
    assert verdict(judge, asked, f"x = 1\n\ndef other():\n    return {name}") is Verdict.RUNTIME_ERROR
    assert verdict(judge, asked, f"from math import {name}") is Verdict.ACCEPTED


@pytest.mark.process
def test_a_provided_class_is_not_the_class_under_test(judge: Judge) -> None:
    case = CallCase(expected=[None, []], args=[[], []], operations=["Counter", "most_common"])
    asked = Problem("p", "", CallTests([case], class_="Counter"))
    assert verdict(judge, asked, "eval('1')") is Verdict.RUNTIME_ERROR


@pytest.mark.process
def test_names_of_the_program_win(judge: Judge) -> None:
    source = "import collections\n\ndef deque(n):\n    return n[0] + 1\n\ndef f(n):\n    return deque(n)"
    assert verdict(judge, problem(), source) is Verdict.ACCEPTED
    assert verdict(judge, problem(), "def f(n):\n    return unheard_of(n)") is Verdict.RUNTIME_ERROR

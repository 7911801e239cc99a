"""Class design problems: operations on one object, each value compared outside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import LIMITS, python
from whetstone.core.errors import UserError
from whetstone.judge import Judge, Verdict

TEXTS: dict[str, str] = data_beside(__file__)["texts"]
LRU = TEXTS["lru"]
OPERATIONS = ["LRUCache", "put", "put", "get", "put", "get", "get"]
ARGS = [[2], [1, 1], [2, 2], [1], [3, 3], [2], [3]]
EXPECTED = [None, None, None, 1, None, -1, 3]


def design_problem(operations: list[str], args: list[Any], expected: list[Any]) -> dict[str, Any]:
    case = {"operations": operations, "args": args, "expected": expected}
    tests = {"kind": "call", "class": operations[0], "cases": [case]}
    return {"id": "t/design", "statement": "", "tests": tests, "limits": LIMITS}


def test_a_right_class_is_accepted_and_a_wrong_one_is_not(judge: Judge) -> None:
    problem = design_problem(OPERATIONS, ARGS, EXPECTED)
    assert judge.judge(problem, python(LRU)).accepted
    wrong = judge.judge(problem, python(LRU.replace("last=False", "last=True")))
    assert wrong.verdict is Verdict.WRONG_ANSWER
    assert wrong.reason.startswith("operation 6, get")


@pytest.mark.parametrize(
    "change",
    [
        {"operations": ["put", "put"], "args": [[2], [1, 1]], "expected": [None, None]},
        {"operations": ["LRUCache", "put"], "args": [[2]], "expected": [None, None]},
        {"operations": ["LRUCache", "put"], "args": [[2], [1, 1]], "expected": None},
        {"operations": ["LRUCache", "put"], "args": [[2], 1], "expected": [None, None]},
        {"operations": ["LRUCache", "pop it"], "args": [[2], []], "expected": [None, None]},
        {"operations": ["LRUCache"], "args": [[2]], "expected": [2]},
        {"operations": None, "args": [2], "expected": 1},
    ],
)
def test_operations_that_do_not_fit_are_refused_before_judging(judge: Judge, change: dict[str, Any]) -> None:
    problem = design_problem(OPERATIONS, ARGS, EXPECTED)
    problem["tests"]["cases"].append(change)
    with pytest.raises(UserError, match="t/design"):
        judge.judge(problem, python(LRU))

"""Class design problems: operations on one object, each value compared outside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judge.judge_problems import LIMITS, python
from whetstone.core.errors import UserError
from whetstone.judge import Judge, Verdict

LRU = """
class LRUCache:
    def __init__(self, capacity: int):
        self.capacity, self.items = capacity, OrderedDict()

    def get(self, key: int) -> int:
        if key not in self.items:
            return -1
        self.items.move_to_end(key)
        return self.items[key]

    def put(self, key: int, value: int) -> None:
        self.items[key] = value
        self.items.move_to_end(key)
        if len(self.items) > self.capacity:
            self.items.popitem(last=False)
"""
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


def test_each_value_is_taken_when_it_is_returned(judge: Judge) -> None:
    """One list, returned again and again, is what it was at each operation, not what it is at the end."""
    source = """
class Log:
    def __init__(self): self.lines = []
    def add(self, line):
        self.lines.append(line)
        return self.lines
"""
    operations, args = ["Log", "add", "add"], [[], ["a"], ["b"]]
    assert judge.judge(design_problem(operations, args, [None, ["a"], ["a", "b"]]), python(source)).accepted
    final = [None, ["a", "b"], ["a", "b"]]
    assert not judge.judge(design_problem(operations, args, final), python(source)).accepted


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("class Other: pass", Verdict.RUNTIME_ERROR),
        ("class LRUCache:\n def __init__(self, n): pass", Verdict.RUNTIME_ERROR),
        ("class LRUCache:\n def __getattr__(self, name): return None", Verdict.RUNTIME_ERROR),
        ("class LRUCache:\n def __init__(self, n): raise SystemExit(0)", Verdict.RUNTIME_ERROR),
        ("import os\nclass LRUCache:\n def __init__(self, n): os._exit(0)", Verdict.RUNTIME_ERROR),
        ("class LRUCache(:", Verdict.COMPILE_ERROR),
        (LRU + "\nLRUCache.get = lambda self, key: type('X', (), {'__eq__': lambda a, b: True})()",
         Verdict.WRONG_ANSWER),
        (LRU + "\nLRUCache.put = lambda self, key, value: 0", Verdict.WRONG_ANSWER),
    ],
)  # fmt: skip
def test_what_is_missing_or_evasive_is_no_answer(judge: Judge, source: str, verdict: Verdict) -> None:
    assert judge.judge(design_problem(OPERATIONS, ARGS, EXPECTED), python(source)).verdict is verdict


@pytest.mark.parametrize("count", [0, 6, 8])
def test_a_forged_answer_needs_a_value_for_every_operation(judge: Judge, count: int) -> None:
    """The program writes the result itself, with too few or too many values, or none."""
    forged = (
        "import os, struct\n"
        "none = b'b' + struct.pack('<Q', 1) + b'N'\n"
        f"body = none * {count}\n"
        "head = b'l' + struct.pack('<Q', 2) + b's' + struct.pack('<Q', 6) + b'values'\n"
        f"os.write(7, head + b'l' + struct.pack('<Q', {count}) + body)\n"
        "os._exit(0)\n"
    )
    judged = judge.judge(design_problem(OPERATIONS, ARGS, EXPECTED), python(forged))
    assert judged.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)


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

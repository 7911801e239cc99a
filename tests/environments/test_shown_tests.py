"""Which tests a statement shows: exactly those that stand in it with their expected values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    InteractiveCase,
    InteractiveTests,
    Problem,
    PythonInteractor,
    StdinCase,
    StdinTests,
)
from whetstone.environments.shown_tests import shown_tests

STATEMENTS = {
    "apps": (
        "Sum.\n\n-----Input-----\nTwo integers.\n\n-----Output-----\nTheir sum.\n\n-----Examples-----\n"
        "Input\n1 2\n\nOutput\n3\n\nInput\n5 7\n\nOutput\n12\n\n-----Note-----\nAdd them.\n"
    ),
    "fences": (
        "Sum.\n\n## Input\nTwo integers.\n\n### Sample Input 1\n\n```\n1 2\n```\n\n### Sample Output 1\n\n"
        "```\n3\n```\n\n### Sample Input 2\n```\n5 7\n```\n### Sample Output 2\n```\n12\n```\nEnd."
    ),
    "tagged": "Sum.\n\n```input\n1 2\n```\n```output\n3\n```\n\n```input\n5 7\n```\n```output\n12\n```\n",
    "inline": (
        "Sum.\n\n**Example 1:**\n\nInput: `1 2`\nOutput: `3`\nExplanation: 1 + 2\n\n"
        "Example 2:\n**Input:** 5 7\n**Output:** 12\n"
    ),
}
SHOWN = [StdinCase("1 2\n", "3\n"), StdinCase("5 7", "12")]
HIDDEN = [
    StdinCase("2", "3"),
    StdinCase("7", "12"),
    StdinCase("1", "3"),
    StdinCase("1 2", "1"),
    StdinCase("5 7", "1"),
    StdinCase("5 7\n1", "12"),
    StdinCase("1 2 3", "6"),
    StdinCase("", "3"),
    StdinCase("5", "7"),
    StdinCase("", ""),
]


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_examples_of_text_are_found_in_every_layout_and_parts_of_them_are_not(statement: str) -> None:
    tests = StdinTests([*HIDDEN, *reversed(SHOWN)])
    assert shown_tests(Problem("p", statement, tests)) == StdinTests(SHOWN)
    assert shown_tests(Problem("p", statement, StdinTests(HIDDEN))) is None


def test_an_output_may_have_a_blank_line() -> None:
    statement = "Input\n2\n\nOutput\na\n\nb\n\nNote\nx"
    for output in ("a\n\nb\n", "a"):
        assert shown_tests(Problem("p", statement, StdinTests([StdinCase("2", output)]))) is not None
    assert shown_tests(Problem("p", statement, StdinTests([StdinCase("2", "b")]))) is None


_TOKENS = st.lists(st.integers(0, 12).map(str), min_size=1, max_size=3).map(" ".join)
_CASES = st.lists(st.tuples(_TOKENS, _TOKENS), min_size=1, max_size=4)


@given(_CASES, _CASES)
def test_a_hidden_case_is_never_taken_for_an_example(shown: Any, hidden: Any) -> None:
    """Whatever numbers they have in common."""
    examples = "\n".join(f"Example:\nInput: {given}\nOutput: {answer}\n" for given, answer in shown)
    cases = [StdinCase(given, answer) for given, answer in hidden]
    found = shown_tests(Problem("p", f"Compute it.\n\n{examples}", StdinTests(cases)))
    expected = sorted(case for case in hidden if case in shown)
    cases = found.cases if isinstance(found, StdinTests) else []
    assert sorted((case.input, case.output) for case in cases if isinstance(case, StdinCase)) == expected


CALLS = """Return the indices.

**Example 1:**

**Input:** nums = [2,7,11,15], target = 9
**Output:** [0,1]
**Explanation:** Because.

>>> pair([1, 2], 3)
[0, 1]

For instance, `pair([5, 5], target=10) -> [0, 1]`.
pair(["a", 'b'], None) returns True
pair([9], 9) is discussed below.
pair([8], 8)
"""


def test_examples_of_calls_are_found_and_others_are_not() -> None:
    shown = [
        CallCase([0, 1], [[2, 7, 11, 15], 9]),
        CallCase([0, 1], [[1, 2], 3]),
        CallCase([0, 1], [[5, 5], 10]),
        CallCase(True, [["a", "b"], None]),
    ]
    hidden = [
        CallCase([0], [[2, 7, 11, 15], 9]),
        CallCase([0, 1], [[7, 11, 15], 9]),
        CallCase([0, 1], [[5, 5], 1]),
        CallCase([0, 1], [9]),
        CallCase(9, [[9], 9]),
        CallCase(8, [[8], 8]),
        CallCase([0, 1], [list(range(9999)), 3]),
    ]
    tests = CallTests([*hidden, *reversed(shown)], "pair")
    assert shown_tests(Problem("p", CALLS, tests)) == CallTests(shown, "pair")


def test_a_call_of_a_class_and_one_with_literals_are_found() -> None:
    statement = 'Input\n["C","up"]\n[[],[2]]\nOutput\n[null,2]\n'
    shown = CallCase([None, 2], [[], [2]], operations=["C", "up"])
    other = CallCase([None, 3], [[], [2]], operations=["C", "up"])
    found = shown_tests(Problem("p", statement, CallTests([other, shown], class_="C")))
    assert found == CallTests([shown], class_="C")
    literals = CallTests([CallCase("(1, 2)", ["{3}"]), CallCase("(1,)", ["{3}"])], "f", literals=True)
    found = shown_tests(Problem("p", ">>> f({3})\n(1, 2)", literals))
    assert found == CallTests(literals.cases[:1], "f", literals=True)


def test_asserts_are_shown_if_their_lines_are() -> None:
    statement = "Write f.\nassert f(1) == 12\n`assert f(2) == 3`\nassert f(\n    4\n) == 5\n"
    asserts = ["assert f(1) == 1", "assert f(1) == 12", "assert f(2) == 3", "assert f(\n    4\n) == 5", "x"]
    found = shown_tests(
        Problem("p", statement, AssertTests("import math\nfrom os import *", asserts=asserts))
    )
    assert found == AssertTests("import math\nfrom os import *", asserts=asserts[1:4])
    secret = AssertTests("def right(x): return 12", asserts=asserts)
    assert shown_tests(Problem("p", statement, secret)) is None


def test_other_tests_are_never_shown() -> None:
    statement = "Input\n1\nOutput\n2\nassert f(1) == 2"
    check = AssertTests(check="def check(f):\n    assert f(1) == 2", entry_point="f")
    talk = InteractiveTests(
        [InteractiveCase("1", "2")], PythonInteractor("def interact(i, r, w): return True")
    )
    for tests in (check, talk, AssertTests(unittest="assert f(1) == 2")):
        assert shown_tests(Problem("p", statement, tests)) is None

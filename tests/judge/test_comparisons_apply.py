"""A problem cannot name a comparison that its tests do not use."""

from __future__ import annotations

from typing import Any

import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, problem_from

CALL = {"kind": "call", "function": "f", "cases": [{"args": [1], "expected": 1.0}]}
CHECK = {"kind": "assert", "check": "def check(f):\n    assert f(1) == 1", "entry_point": "f"}
INTERACTIVE = {
    "kind": "interactive",
    "cases": [{"input": ""}],
    "interactor": {"type": "python", "source": "def interact(i, read, write): return True"},
}
STDIN = {"kind": "stdin", "cases": [{"input": "", "output": "1"}]}


def problem(tests: dict[str, Any], **compare: Any) -> Problem:
    return problem_from({"id": "p", "statement": "", "tests": tests, "compare": compare})


@pytest.mark.parametrize(
    ("tests", "compare", "remedy"),
    [
        (CALL, {"mode": "floats", "abs": 1e-6}, "leave it out, or name the comparison of a grader"),
        (CALL, {"mode": "exact"}, "has no effect on `call` tests"),
        (CALL, {"mode": "ignore_case"}, "leave it out"),
        (CALL, {"rel": 1e-3}, "has no effect on `call` tests"),
        (CHECK, {"mode": "floats", "rel": 1e-3}, "write tolerances into the asserts"),
        (CHECK, {"mode": "grader:lcb"}, "has no effect on `assert` tests"),
        ({"kind": "assert", "asserts": ["assert f()"]}, {"mode": "lines"}, "leave it out"),
        ({"kind": "assert", "unittest": "x"}, {"mode": "kattis"}, "leave it out"),
        (
            INTERACTIVE,
            {"mode": "tokens", "case_sensitive": False, "abs": 0.1},
            "has no effect on `interactive` tests",
        ),
        (INTERACTIVE, {"mode": "floats"}, "has no effect on `interactive` tests: leave it out"),
        ({"kind": "none"}, {"mode": "exact"}, "has no effect on `none` tests"),
    ],
)
def test_a_comparison_without_effect_is_refused_with_the_remedy(
    tests: dict[str, Any], compare: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(UserError) as refused:
        problem(tests, **compare)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("tests", "compare"),
    [
        (STDIN, {"mode": "floats", "abs": 1e-6}),
        (STDIN, {"mode": "kattis", "rel": 1e-6, "case_sensitive": True}),
        (STDIN, {"mode": "grader:lcb"}),
        (CALL, {"mode": "grader:evalplus", "abs": 1e-6, "oracle": "x"}),
        (CALL, {}),
        (CALL, {"mode": "tokens", "abs": 1e-6, "rel": 1e-6}),
        (CHECK, {"mode": "tokens"}),
        (INTERACTIVE, {}),
    ],
)
def test_a_comparison_that_applies_is_accepted(tests: dict[str, Any], compare: dict[str, Any]) -> None:
    assert problem(tests, **compare).compare.mode == compare.get("mode", "tokens")

"""Printed answers: what counts as the same, that hostile output is not accepted, and which tests compare."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.beside import data_beside
from whetstone.core.errors import UserError
from whetstone.core.problem import Compare, Problem, problem_from
from whetstone.judge.answers.text import compare

DATA = data_beside(__file__)

TOKENS = Compare()


def same(output: str | bytes, expected: str, rule: Compare = TOKENS) -> bool:
    data = output.encode("utf-8", "surrogateescape") if isinstance(output, str) else output
    right, reason = compare(data, expected, rule)
    assert right == (reason == ""), reason
    return right


@pytest.mark.parametrize(
    ("output", "expected"),
    DATA["same"],
)
def test_the_same_answer_in_another_spelling_is_right(output: str, expected: str) -> None:
    assert same(output, expected)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        *DATA["another"],
        (b"\xff\xfe", "3"),
        (b"\xff", "\ufffd"),
    ],
)
def test_another_answer_is_wrong(output: str | bytes, expected: str) -> None:
    assert not same(output, expected)


@pytest.mark.parametrize(
    ("mode", "output", "expected", "right"),
    DATA["modes"],
)
def test_a_problem_can_name_another_mode(mode: str, output: str, expected: str, right: bool) -> None:
    assert same(output, expected, Compare(mode)) is right  # type: ignore[arg-type]


def test_floats_takes_the_problems_own_tolerance_for_integers_too() -> None:
    rule = Compare("floats", abs=0.5, rel=0.0)
    assert same("10.4", "10", rule)
    assert not same("10.6", "10", rule)
    assert not same("ten", "10", rule)
    assert same("101", "100", Compare("floats", abs=0.0, rel=0.01))
    assert not same("102", "100", Compare("floats", abs=0.0, rel=0.01))


def test_numbers_of_a_million_digits_are_compared_exactly() -> None:
    digits = "7" * 1_000_000
    assert same("0" + digits, digits)
    assert not same(digits[:-1] + "8", digits)
    assert same("0" + digits + "." + digits, digits + "." + digits)


numbers = st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**9), max_value=10**9)


@given(numbers, numbers)
def test_tolerance_is_the_definition(found: Decimal, wanted: Decimal) -> None:
    expected = f"{wanted:.5f}"
    bound = Decimal("1e-6")
    difference = abs(found - wanted)
    if min(abs(difference - bound), abs(difference - bound * abs(wanted))) > Decimal("1e-12"):
        assert same(f"{found:.5f}", expected) == (difference <= bound or difference <= bound * abs(wanted))


@given(st.integers(), st.integers())
def test_integers_get_no_tolerance(found: int, wanted: int) -> None:
    assert same(str(found), str(wanted)) == (found == wanted)
    assert same(f"{found}.0", str(wanted)) == (found == wanted)


@given(st.binary(), st.text(), st.sampled_from(["tokens", "exact", "lines", "floats", "ignore_case"]))
def test_any_output_gets_an_answer_and_a_short_reason(output: bytes, expected: str, mode: str) -> None:
    right, reason = compare(output, expected, Compare(mode))  # type: ignore[arg-type]
    assert right == (reason == "")
    assert len(reason) < 300


@given(st.text(st.characters(codec="utf-8")), st.sampled_from(["tokens", "exact", "lines", "floats"]))
def test_the_expected_text_itself_is_right(text: str, mode: str) -> None:
    assert same(text.encode(), text, Compare(mode))  # type: ignore[arg-type]


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

"""Printed answers: what counts as the same, and that hostile output is neither accepted nor slow."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.problem import Compare
from whetstone.judge.answers.text import compare

TOKENS = Compare()


def same(output: str | bytes, expected: str, rule: Compare = TOKENS) -> bool:
    data = output.encode("utf-8", "surrogateescape") if isinstance(output, str) else output
    right, reason = compare(data, expected, rule)
    assert right == (reason == ""), reason
    return right


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("3\n", "3"),
        (" 1\t2 \r\n\n3", "1 2\n3\n"),
        ("3.0", "3"),
        ("03", "3"),
        ("+3", "3"),
        ("-0", "0"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("0.5000004", "0.5"),
        ("1000000.9", "1000000.0"),
        ("1e999999999", "1e999999999"),
        ("1.0e999999999", "10.0e999999998"),
        ("10000000", "1e+07"),
        ("9.9999999e6", "1e+07"),
        ("1e7", "1.0E7"),
        ("0.0000001", "1e-07"),
        ("-.5", "-0.50"),
        ("nan", "nan"),
        ("é", "é"),
    ],
)
def test_the_same_answer_in_another_spelling_is_right(output: str, expected: str) -> None:
    assert same(output, expected)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("", "3"),
        ("3 3", "3"),
        ("33", "3 3"),
        ("yes", "YES"),
        ("1000001", "1000000"),
        ("1000000.9", "1000000"),
        ("3.0000001", "3"),
        ("0.500002", "0.5"),
        ("nan", "0.0"),
        ("nan", "1.5"),
        ("inf", "1.5"),
        ("1e999999999", "1.5"),
        ("1e999999999", "2e999999999"),
        ("1e99999999999999999999", "1.0"),
        ("NaN", "nan"),
        ("1_0", "10"),
        ("٣", "3"),
        ("0x3", "3"),
        ("3\x00", "3"),
        ("1\xa02", "1 2"),
        ("3", "three"),
        ("1234560000000", "123456e7"),
        ("1234560e6", "123456e7"),
        ("123456E7", "123456e7"),
        ("100000", "1e5"),
        ("0", "0e462097431906509019562988736854"),
        ("0e1", "0E2"),
        ("120000", "12e4"),
        ("15551234", "+15551234"),
        ("9.3", "09.30"),
        ("9.30", "09.30"),
        ("1e+3", "+1e+3"),
        ("-7", "-007"),
        (b"\xff\xfe", "3"),
        (b"\xff", "\ufffd"),
    ],
)
def test_another_answer_is_wrong(output: str | bytes, expected: str) -> None:
    assert not same(output, expected)


@pytest.mark.parametrize(
    ("mode", "output", "expected", "right"),
    [
        ("exact", "a b\n", "a b\n", True),
        ("exact", "a b", "a b\n", False),
        ("lines", "a  b \r\nc\n\n", "a  b\nc", True),
        ("lines", "a b\nc", "a  b\nc", False),
        ("lines", "\na", "a", False),
        ("ignore_case", "Yes É 3.0", "yES é 3", True),
        ("ignore_case", "no", "yes", False),
        ("ignore_case", "12E4", "12e4", True),
        ("ignore_case", "120000", "12e4", False),
        ("ignore_case", "\u0390\u212a", "\u1fd3k", True),
        ("floats", "100000", "1e5", True),
        ("floats", "7", "007", True),
        ("unordered_lines", "b\na\n\n", "a\nb", True),
        ("unordered_lines", "a\na\nb", "a\nb\nb", False),
        ("unordered_lines", "a", "a\nb", False),
    ],
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

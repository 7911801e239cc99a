"""Modes that reproduce other judges decide as those judges do, their faults included.

Each rule is written down here a second time, from the judge's own description, and held against ours on
random texts. None of this says that the rules are good.
"""

from __future__ import annotations

import decimal
import math
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.beside import data_beside
from whetstone.core.problem import Compare
from whetstone.judge.answers.comparisons import add_comparisons
from whetstone.judge.answers.text import compare
from whetstone_graders import COMPARISONS

DATA = data_beside(__file__)

add_comparisons(COMPARISONS)

_NUMBERS = ["0", "1", "-0", "1.0", "1.00001", "1.0000001", "0.99999", "1e0", "+1", "1e400", "0x1", "0x1p0"]
_WORDS = ["1_0", "nan", "sNaN", "inf", "Infinity", "a", "A", "Yes", "YES", "é", "١"]
_PIECES = st.sampled_from(_NUMBERS + _WORDS)
_SPACES = st.sampled_from([" ", "  ", "\n", "\n\n", "\r\n", "\t", " \n", "\v"])
_TEXTS = st.lists(_PIECES | _SPACES, max_size=7).map("".join)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[str, str]:
    """An output and an expected text that are often alike."""
    expected = draw(_TEXTS)
    if draw(st.integers(0, 3)) == 0:
        return draw(_TEXTS), expected
    place = draw(st.integers(0, len(expected)))
    piece = draw(st.sampled_from(["", "0", "\n", " ", "x", "e0", "."]))
    return expected[:place] + piece + expected[place + draw(st.integers(0, 1)) :], expected


def _lcb(output: str, expected: str) -> bool:
    mine = [line.strip() for line in output.strip().split("\n")]
    theirs = [line.strip() for line in expected.strip().split("\n")]
    if len(mine) != len(theirs):
        return False
    for a, b in zip(mine, theirs, strict=True):
        if a == b:
            continue
        try:
            left = [decimal.Decimal(word) for word in a.split()]
            right = [decimal.Decimal(word) for word in b.split()]
            if len(left) != len(right) or not all(x == y for x, y in zip(left, right, strict=True)):
                return False
        except decimal.InvalidOperation:
            return False
    return True


def _scalebox(output: str, expected: str) -> bool:
    for a, b in zip(output.strip().split("\n"), expected.strip().split("\n"), strict=False):
        a, b = a.lower(), b.lower()
        if a.strip() == b.strip():
            continue
        try:
            x, y = float(a), float(b)
        except ValueError:
            return False
        if not abs(x - y) / max(abs(y), 1e-10) < 1e-5:
            return False
    return True


def _double(token: str) -> float | None:
    """What C's ``%lf`` reads of a whole token, if that is finite."""
    if any(c not in string.hexdigits + "xXpP.+-" for c in token):
        return None
    try:
        value = float.fromhex(token) if "x" in token.lower() else float(token)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _kattis(output: str, expected: str, rule: dict[str, Any]) -> bool:
    """The validator's loop: white space, then a token, on both sides in turn."""
    spaces, i, j = " \t\n\v\f\r", 0, 0
    strict = rule.get("space_change_sensitive", False)
    while True:
        while j < len(expected) and expected[j] in spaces:
            if strict:
                if i >= len(output) or output[i] != expected[j]:
                    return False
                i += 1
            j += 1
        while i < len(output) and output[i] in spaces:
            if strict:
                return False
            i += 1
        if j == len(expected):
            return i == len(output)
        if i == len(output):
            return False
        start, begin = i, j
        while i < len(output) and output[i] not in spaces:
            i += 1
        while j < len(expected) and expected[j] not in spaces:
            j += 1
        if not _kattis_token(output[start:i], expected[begin:j], rule):
            return False


def _kattis_token(output: str, expected: str, rule: dict[str, Any]) -> bool:
    absolute, relative = rule.get("abs"), rule.get("rel")
    wanted = _double(expected)
    if (absolute is not None or relative is not None) and wanted is not None:
        found = _double(output)
        if found is None:
            return False
        error = abs(wanted - found)
        return (absolute is not None and error <= absolute) or (
            relative is not None and error <= relative * abs(wanted)
        )
    if rule.get("case_sensitive"):
        return output == expected
    lower = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
    return output.translate(lower) == expected.translate(lower)


_FLAGS = st.fixed_dictionaries(
    {},
    optional={
        "case_sensitive": st.booleans(),
        "space_change_sensitive": st.booleans(),
        "abs": st.sampled_from([0.0, 1e-6, 1e-4]),
        "rel": st.sampled_from([0.0, 1e-6, 1e-4]),
    },
)


def _ours(mode: Any, output: str, expected: str, **flags: Any) -> bool:
    return compare(output.encode(), expected, Compare(mode=mode, **flags))[0]


@settings(max_examples=600, deadline=None)
@given(_pairs())
def test_lcb_decides_as_livecodebench_does(texts: tuple[str, str]) -> None:
    assert _ours("grader:lcb", *texts) is _lcb(*texts)


@settings(max_examples=600, deadline=None)
@given(_pairs())
def test_scalebox_decides_as_scalebox_does(texts: tuple[str, str]) -> None:
    assert _ours("grader:scalebox", *texts) is _scalebox(*texts)


@pytest.mark.extended
@settings(max_examples=1000, deadline=None)
@given(_pairs(), _FLAGS)
def test_kattis_decides_as_the_default_validator_does(texts: tuple[str, str], flags: dict[str, Any]) -> None:
    assert _ours("kattis", *texts, **flags) is _kattis(*texts, flags)


@pytest.mark.parametrize(
    ("mode", "output", "expected", "flags", "right"),
    DATA["rules"],
)
def test_rules(mode: str, output: str, expected: str, flags: dict[str, Any], right: bool) -> None:
    assert _ours(mode, output, expected, **flags) is right


@pytest.mark.cost
@pytest.mark.parametrize("mode", ["grader:lcb", "grader:scalebox", "kattis"])
@pytest.mark.parametrize(
    "hostile", [b"1" * 10**6, b"1e" + b"9" * 10**6, b"0x" + b"f" * 10**6, b"\xff\0" * 10**5]
)
def test_hostile_output_is_refused_in_linear_time(mode: Any, hostile: bytes) -> None:
    """A quadratic step over a million characters would take hours, which the suite's own time limit ends."""
    rule = Compare(mode=mode, abs=1e-6) if mode == "kattis" else Compare(mode=mode)
    assert not compare(hostile, "1.5", rule)[0]

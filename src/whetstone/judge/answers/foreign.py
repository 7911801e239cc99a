"""Printed text against expected text by the rules of other judges, for comparison with their figures.

Each function says whose rule it is, in which version, and what that rule lets pass. None of them is
meant for training: ``scalebox`` accepts a program that stops after its first line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import isfinite

from whetstone.problem import Compare

_CONVERSION_ERRORS = (ValueError, InvalidOperation)
_SCALEBOX_RELATIVE = 1e-5
_SCALEBOX_FLOOR = 1e-10
# What C++ streams split on; a run of it, or of anything else.
_RUNS = re.compile(rb"[ \t\n\v\f\r]+|[^ \t\n\v\f\r]+")
_SPACE = frozenset(b" \t\n\v\f\r")
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(
    rb"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
)
# float.fromhex takes quadratic time: more digits than this decide nothing in a double.
_MAX_HEXADECIMAL = 4096


def compare_lcb(output: bytes, wanted: bytes, _rule: Compare) -> tuple[bool, str]:
    """LiveCodeBench at 28fef95, ``testing_util.grade_stdio``.

    Both texts stripped, as many lines, each stripped; a line matches if equal, or if both are decimal
    numbers with equal values (exactly: no tolerance), where Python's ``Decimal`` says what is one.
    """
    found, needed = _stripped_lines(output), _stripped_lines(wanted)
    if len(found) != len(needed):
        return False, f"{len(found)} lines, expected {len(needed)}"
    for number, (left, right) in enumerate(zip(found, needed, strict=True)):
        if left != right and not _decimals_equal(left, right):
            return False, f"line {number + 1} differs"
    return True, ""


def compare_scalebox(output: bytes, wanted: bytes, _rule: Compare) -> tuple[bool, str]:
    """ScaleBox at 4bcfefd, ``sandbox/utils/testing.py``, ``check_stdio_test_case``.

    Both texts stripped; lines side by side as far as *both* have them, in lower case, stripped; a line
    matches if equal, or if both are Python floats within 1e-5 of the expected one. Lines that only one
    text has are not looked at.
    """
    found, needed = _text(output).strip().split("\n"), _text(wanted).strip().split("\n")
    for number, (left, right) in enumerate(zip(found, needed, strict=False)):
        if left.lower().strip() != right.lower().strip() and not _floats_near(left.lower(), right.lower()):
            return False, f"line {number + 1} differs"
    return True, ""


def compare_kattis(output: bytes, wanted: bytes, rule: Compare) -> tuple[bool, str]:
    """Kattis problemtools at a185fe9, ``support/default_validator``: the default output validator.

    Tokens, without regard to (ASCII) case unless ``case_sensitive``. With a tolerance, an expected token
    that scans as a finite double is met by a finite double within ``abs`` or ``rel``. With
    ``space_change_sensitive`` the white space is the same byte for byte. (There, a NUL byte ends a token.)
    """
    found, needed = _RUNS.findall(output), _RUNS.findall(wanted)
    if not rule.space_change_sensitive:
        found, needed = ([run for run in runs if run[0] not in _SPACE] for runs in (found, needed))
    for number, (left, right) in enumerate(zip(found, needed, strict=False)):
        if left != right and not _kattis_match(left, right, rule):
            return False, f"token {number + 1} differs"
    if len(found) != len(needed):
        return False, "more output than expected" if len(found) > len(needed) else "less output than expected"
    return True, ""


FOREIGN: dict[str, Callable[[bytes, bytes, Compare], tuple[bool, str]]] = {
    "lcb": compare_lcb,
    "scalebox": compare_scalebox,
    "kattis": compare_kattis,
}


def _text(data: bytes) -> str:
    """What is not UTF-8 becomes characters that no expected text has."""
    return data.decode("utf-8", "surrogateescape")


def _stripped_lines(data: bytes) -> list[str]:
    return [line.strip() for line in _text(data).strip().split("\n")]


def _decimals_equal(left: str, right: str) -> bool:
    try:
        return [Decimal(word) for word in left.split()] == [Decimal(word) for word in right.split()]
    except _CONVERSION_ERRORS:  # also raised by the comparison of a signalling NaN
        return False


def _floats_near(left: str, right: str) -> bool:
    try:
        found, needed = float(left), float(right)
    except ValueError:
        return False
    return abs(found - needed) / max(abs(needed), _SCALEBOX_FLOOR) < _SCALEBOX_RELATIVE


def _kattis_match(left: bytes, right: bytes, rule: Compare) -> bool:
    if left[0] in _SPACE or right[0] in _SPACE:
        return False
    needed = _scanned(right) if rule.abs is not None or rule.rel is not None else None
    if needed is not None:
        found = _scanned(left)
        if found is None:
            return False
        difference = abs(needed - found)
        return difference <= _bound(rule.abs) or difference <= _bound(rule.rel) * abs(needed)
    return not rule.case_sensitive and left.lower() == right.lower()


def _bound(tolerance: float | None) -> float:
    return -1.0 if tolerance is None else tolerance


def _scanned(token: bytes) -> float | None:
    """The finite double that C's ``%lf`` makes of a whole token; None where it makes none."""
    if _DECIMAL.fullmatch(token):
        value = float(token)
    elif len(token) <= _MAX_HEXADECIMAL and _HEXADECIMAL.fullmatch(token):
        try:
            value = float.fromhex(token.decode("ascii"))
        except OverflowError:
            return None
    else:
        return None
    return value if isfinite(value) else None

"""Printed text against expected text by the rules of LiveCodeBench and ScaleBox.

Each function names the origin of its rule, the version, and what the rule accepts in addition. None of them
is meant for training: ``scalebox`` accepts a program that stops after its first line.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from whetstone.core.problem import Compare

_CONVERSION_ERRORS = (ValueError, InvalidOperation)
_SCALEBOX_RELATIVE = 1e-5
_SCALEBOX_FLOOR = 1e-10


def compare_lcb(output: bytes, wanted: bytes, _rule: Compare) -> tuple[bool, str]:
    """LiveCodeBench at 28fef95, ``testing_util.grade_stdio``.

    Both texts stripped, as many lines, each stripped; a line matches if equal, or if both are decimal
    numbers with equal values (exactly: no tolerance), where Python's ``Decimal`` says what is one.
    """
    text, needed = _text(output).strip(), _stripped_lines(wanted)
    count = text.count("\n") + 1
    if count != len(needed):
        return False, f"{count} lines, expected {len(needed)}"
    found = [line.strip() for line in text.split("\n")]
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
    needed = _text(wanted).strip().split("\n")
    found = _text(output).strip().split("\n", len(needed))
    for number, (left, right) in enumerate(zip(found, needed, strict=False)):
        if left.lower().strip() != right.lower().strip() and not _floats_near(left.lower(), right.lower()):
            return False, f"line {number + 1} differs"
    return True, ""


def _text(data: bytes) -> str:
    """Return the text; bytes that are not UTF-8 become characters that no expected text has."""
    return data.decode("utf-8", "surrogateescape")


def _stripped_lines(data: bytes) -> list[str]:
    return [line.strip() for line in _text(data).strip().split("\n")]


def _decimals_equal(left: str, right: str) -> bool:
    try:
        needed = right.split()
        found = left.split(None, len(needed))
        if len(found) != len(needed):
            return False
        return all(Decimal(one) == Decimal(other) for one, other in zip(found, needed, strict=True))
    except _CONVERSION_ERRORS:  # also raised by the comparison of a signalling NaN
        return False


def _floats_near(left: str, right: str) -> bool:
    try:
        found, needed = float(left), float(right)
    except ValueError:
        return False
    return abs(found - needed) / max(abs(needed), _SCALEBOX_FLOOR) < _SCALEBOX_RELATIVE

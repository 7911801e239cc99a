"""Compare printed text with expected text: the modes of ``problem.Compare``.

Added modes are looked up in ``comparisons``.

All comparisons use bytes, because a program may print invalid text. Only ASCII spellings count as numbers, so
``nan``, ``inf``, ``1_0`` and digits of other scripts are words. Numbers are compared as strings of digits: a
number of a million digits is compared in linear time and without rounding. The output is split into at most
one token or line more than expected.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from math import isfinite

from whetstone.core.problem import Compare
from whetstone.judge.answers.comparisons import text_rule

# A run of the white space that C++ streams skip, or a run of other bytes.
_RUNS = re.compile(rb"[ \t\n\v\f\r]+|[^ \t\n\v\f\r]+")
_SPACE = frozenset(b" \t\n\v\f\r")
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(
    rb"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
)
# float.fromhex takes quadratic time. A longer token does not change the value of a double.
_MAX_HEX_DIGITS = 4096


def compare_kattis(output: bytes, wanted: bytes, rule: Compare) -> tuple[bool, str]:
    """Compare like ``support/default_validator`` of Kattis problemtools at a185fe9.

    Compares tokens. ASCII case matters only with ``case_sensitive``. With a tolerance, an expected token that
    scans as a finite double accepts a finite double within ``abs`` or ``rel``. With
    ``space_change_sensitive``, white space must be the same byte for byte. Unlike here, a NUL byte ends a
    token there.
    """
    needed = _RUNS.findall(wanted)
    # White space and tokens alternate, and either may come first.
    found = [match[0] for match in islice(_RUNS.finditer(output), 2 * len(needed) + 3)]
    if not rule.space_change_sensitive:
        found, needed = ([run for run in runs if run[0] not in _SPACE] for runs in (found, needed))
    for number, (left, right) in enumerate(zip(found, needed, strict=False)):
        if left != right and not _kattis_match(left, right, rule):
            return False, f"token {number + 1} differs"
    if len(found) != len(needed):
        return False, "more output than expected" if len(found) > len(needed) else "less output than expected"
    return True, ""


def _kattis_match(left: bytes, right: bytes, rule: Compare) -> bool:
    if left[0] in _SPACE or right[0] in _SPACE:
        return False
    needed = _scan_double(right) if rule.abs is not None or rule.rel is not None else None
    if needed is not None:
        found = _scan_double(left)
        if found is None:
            return False
        difference = abs(needed - found)
        return difference <= _bound(rule.abs) or difference <= _bound(rule.rel) * abs(needed)
    return not rule.case_sensitive and left.lower() == right.lower()


def _bound(tolerance: float | None) -> float:
    return -1.0 if tolerance is None else tolerance


def _scan_double(token: bytes) -> float | None:
    """Return the finite double that C's ``%lf`` reads from the whole token; None if it reads none."""
    if _DECIMAL.fullmatch(token):
        value = float(token)
    elif len(token) <= _MAX_HEX_DIGITS and _HEXADECIMAL.fullmatch(token):
        try:
            value = float.fromhex(token.decode("ascii"))
        except OverflowError:
            return None
    else:
        return None
    return value if isfinite(value) else None


_NUMBER = re.compile(rb"([+-]?)(?:([0-9]+)(\.[0-9]*)?|(\.[0-9]+))(?:[eE]([+-]?[0-9]+))?")
# Numbers in the form that programs print by default. An expected 007, 09.30 or +5 is formatted on purpose, so
# its spelling is part of the answer. An exponent with neither a sign nor a point before it (123456e7, 0e12)
# is letters and digits by accident: printed numbers are 1e+07, 1e-07 or 1.0E7.
_PLAIN = re.compile(rb"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-][0-9]+)?")
_PLAIN_EXPONENT = re.compile(rb"-?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)[eE][0-9]+")
# A line with more than blanks. An output may have millions of blank lines, which cost little here.
_LINE = re.compile(rb"^[ \t\r\v\f]*[^\n \t\r\v\f][^\n]*", re.MULTILINE)
_TOLERANCE = 1e-6
# The casefold of a character can be up to three times as long in bytes, or a third as long.
_MAX_CASEFOLD_RATIO = 9
_BLANK = b" \t\r\v\f"
# Tolerances are computed in double precision. This factor absorbs the rounding of the bounds.
_ROUNDING_FACTOR = 1 + 1e-9


def compare(output: bytes, expected: str, rule: Compare) -> tuple[bool, str]:
    """Compare ``output`` with ``expected``. Return (correct, reason); the reason is empty if correct."""
    wanted = expected.encode("utf-8", "surrogatepass")
    added = compare_kattis if rule.mode == "kattis" else text_rule(rule)
    if added is not None:
        return added(output, wanted, rule)
    if rule.mode == "exact":
        return _compare_exact(output, wanted)
    if rule.mode == "lines":
        needed = _lines(wanted)
        return _compare_sequences("line", _lines(output, len(needed)), needed, rule)
    if rule.mode == "unordered_lines":
        return _compare_unordered(output, wanted)
    needed = wanted.split()
    return _compare_sequences("token", output.split(None, len(needed)), needed, rule)


def _compare_exact(output: bytes, wanted: bytes) -> tuple[bool, str]:
    if output == wanted:
        return True, ""
    low, high = 0, min(len(output), len(wanted))
    # A binary search for the first difference: each step compares half as many bytes as the one before.
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if output[low:middle] == wanted[low:middle] else (low, middle - 1)
    return False, f"byte {low + 1}: got {_show(output[low:])}, expected {_show(wanted[low:])}"


def _lines(text: bytes, limit: int = -1) -> list[bytes]:
    """Return lines without trailing blanks, and without empty lines at the end.

    After ``limit`` lines the rest is one item.
    """
    text = text.rstrip(_BLANK + b"\n")
    return [line.rstrip(_BLANK) for line in text.split(b"\n", limit)] if text else []


def _casefold(text: bytes) -> bytes:
    return text.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def _nonempty_lines(text: bytes) -> Iterable[bytes]:
    return (match[0].rstrip(_BLANK) for match in _LINE.finditer(text))


def _compare_unordered(output: bytes, wanted: bytes) -> tuple[bool, str]:
    """Compare lines without their order, each as often as expected. Empty lines are ignored."""
    needed = Counter(_nonempty_lines(wanted))
    limit = needed.total()
    found = Counter(islice(_nonempty_lines(output), limit + 1))
    if found == needed:
        return True, ""
    if found.total() > limit:
        return False, f"more than {limit} lines"
    missing = next(iter(needed - found), None)
    if missing is not None:
        return False, f"line {_show(missing)} is missing"
    return False, f"line {_show(next(iter(found - needed)))} is not expected"


def _compare_sequences(
    unit: str, output: list[bytes], wanted: list[bytes], rule: Compare
) -> tuple[bool, str]:
    """Compare item by item. The last item of ``output`` may contain everything beyond the expected number."""
    if output == wanted:
        return True, ""
    for place, (left, right) in enumerate(zip(output, wanted, strict=False)):
        if left != right and (unit == "line" or not _tokens_match(left, right, rule)):
            return False, f"{unit} {place + 1}: got {_show(left)}, expected {_show(right)}"
    if len(output) > len(wanted):
        return False, f"more than {len(wanted)} {unit}s"
    if len(output) < len(wanted):
        return False, f"{len(output)} {unit}s, expected {len(wanted)}"
    return True, ""


def _tokens_match(output: bytes, expected: bytes, rule: Compare) -> bool:
    """Return whether a token with another spelling is still the expected word or number."""
    mode = rule.mode
    comparable = mode == "ignore_case" and len(output) <= _MAX_CASEFOLD_RATIO * len(expected)
    if comparable and _casefold(output) == _casefold(expected):
        return True
    wanted = _NUMBER.fullmatch(expected)
    if wanted is None or not (
        mode == "floats" or _PLAIN.fullmatch(expected) or _PLAIN_EXPONENT.fullmatch(expected)
    ):
        return False
    found = _NUMBER.fullmatch(output)
    if found is None:
        return False
    left, right = _decimal(found), _decimal(wanted)
    if left is None or right is None:
        return False
    if left == right:
        return True
    integer = wanted[3] is None and wanted[4] is None and wanted[5] is None
    if mode == "floats":
        given = (_TOLERANCE if bound is None else bound for bound in (rule.abs, rule.rel))
        return _is_within(left, right, *given)
    return not integer and _is_within(left, right, _TOLERANCE, _TOLERANCE)


_Decimal = tuple[bool, bytes, int]
"""Sign, significant digits (no zero at either end), power of ten. Equal numbers are equal tuples."""


def _decimal(match: re.Match[bytes]) -> _Decimal | None:
    """Return the number that a match represents; None if its exponent is too large, so that only equal
    text matches."""
    sign, whole, fraction, bare, exponent = match.groups()
    fraction = ((fraction or bare) or b".")[1:]
    power = 0
    if exponent is not None:
        magnitude = exponent.lstrip(b"+-0") if exponent[:1] in b"+-" else exponent.lstrip(b"0")
        if len(magnitude) > 9:
            return None
        power = int(magnitude or b"0") * (-1 if exponent[:1] == b"-" else 1)
    digits = (whole or b"") + fraction
    trimmed = digits.rstrip(b"0")
    power += len(digits) - len(trimmed) - len(fraction)
    significant = trimmed.lstrip(b"0")
    if not significant:
        return (False, b"", 0)
    return (sign == b"-", significant, power)


def _is_within(found: _Decimal, wanted: _Decimal, absolute: float, relative: float) -> bool:
    left, right = _float(found), _float(wanted)
    difference = abs(left - right)
    # An infinite double is a number that is too large for a double. Only exact equality (above) accepts it.
    if difference == float("inf") or difference != difference:
        return False
    return difference <= absolute * _ROUNDING_FACTOR or difference <= relative * abs(right) * _ROUNDING_FACTOR


def _float(value: _Decimal) -> float:
    negative, digits, power = value
    # 40 digits determine a double. More digits only cost time.
    text = f"{digits[:40].decode() or '0'}e{power + max(0, len(digits) - 40)}"
    return -float(text) if negative else float(text)


def _show(text: bytes, width: int = 40) -> str:
    shown = text[: width + 1].decode("utf-8", "replace")
    shown = shown[:width] + "…" if len(shown) > width else shown
    return repr(shown) if shown else "nothing"

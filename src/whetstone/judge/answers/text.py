"""Printed text against expected text: the comparison modes of ``problem.Compare``.

Modes that the judge was given are found by ``comparisons``.

Everything is done on bytes, because a program may print what is not text at all. Numbers are
recognised by their ASCII spelling only (so ``nan``, ``inf``, ``1_0`` and digits of other scripts are
words), and are held side by side as digit strings, so that a number of a million digits is compared
in linear time and without rounding. No more tokens or lines are made of an output than are expected, and one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from whetstone.judge.answers.comparisons import text_rule
from whetstone.judge.answers.kattis import compare_kattis
from whetstone.problem import Compare

_NUMBER = re.compile(rb"([+-]?)(?:([0-9]+)(\.[0-9]*)?|(\.[0-9]+))(?:[eE]([+-]?[0-9]+))?")
# As programs print numbers unless told otherwise. An expected 007 or 09.30 was padded on purpose, and a + put
# there, so they are part of the answer; where an exponent has neither a sign nor a point before it (123456e7,
# 0e12), letters and digits just met: printed numbers are 1e+07, 1e-07 or 1.0E7.
_PLAIN = re.compile(rb"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-][0-9]+)?")
_POINTED = re.compile(rb"-?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)[eE][0-9]+")
_LINE = re.compile(rb"[^\n]+")
_TOLERANCE = 1e-6
# A character takes up to three times the bytes of its folded form, or a third of them.
_MOST_FOLDED = 9
_BLANK = b" \t\r\v\f"
# A tolerance is applied in double precision: this absorbs the rounding of the bounds themselves.
_SLACK = 1 + 1e-9


def compare(output: bytes, expected: str, rule: Compare) -> tuple[bool, str]:
    """Hold ``output`` against ``expected``; return (right, reason), the reason empty when right."""
    wanted = expected.encode("utf-8", "surrogatepass")
    added = compare_kattis if rule.mode == "kattis" else text_rule(rule)
    if added is not None:
        return added(output, wanted, rule)
    if rule.mode == "exact":
        return _exact(output, wanted)
    if rule.mode == "lines":
        needed = _lines(wanted)
        return _sequence("line", _lines(output, len(needed)), needed, rule)
    if rule.mode == "unordered_lines":
        return _unordered(output, wanted)
    needed = wanted.split()
    return _sequence("token", output.split(None, len(needed)), needed, rule)


def _exact(output: bytes, wanted: bytes) -> tuple[bool, str]:
    if output == wanted:
        return True, ""
    low, high = 0, min(len(output), len(wanted))
    while low < high:  # halving: what is looked at a second time is half as long
        middle = (low + high + 1) // 2
        low, high = (middle, high) if output[low:middle] == wanted[low:middle] else (low, middle - 1)
    return False, f"byte {low + 1}: got {_show(output[low:])}, expected {_show(wanted[low:])}"


def _lines(text: bytes, most: int = -1) -> list[bytes]:
    """Lines without trailing blanks, and without empty lines at the end; the rest beyond ``most`` is one."""
    text = text.rstrip(_BLANK + b"\n")
    return [line.rstrip(_BLANK) for line in text.split(b"\n", most)] if text else []


def _folded(text: bytes) -> bytes:
    return text.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def _filled_lines(text: bytes) -> Iterable[bytes]:
    return filter(None, (match[0].rstrip(_BLANK) for match in _LINE.finditer(text)))


def _unordered(output: bytes, wanted: bytes) -> tuple[bool, str]:
    """The same lines, each as often; where lines have no order, empty ones have no meaning."""
    needed = Counter(_filled_lines(wanted))
    most = needed.total()
    found = Counter(islice(_filled_lines(output), most + 1))
    if found == needed:
        return True, ""
    if found.total() > most:
        return False, f"more than {most} lines"
    missing = next(iter(needed - found), None)
    if missing is not None:
        return False, f"line {_show(missing)} is missing"
    return False, f"line {_show(next(iter(found - needed)))} is not expected"


def _sequence(unit: str, output: list[bytes], wanted: list[bytes], rule: Compare) -> tuple[bool, str]:
    """Units side by side. ``output`` may end in one that holds all beyond the expected number."""
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
    """Whether a token that differs in spelling is still the expected word or number."""
    mode = rule.mode
    comparable = mode == "ignore_case" and len(output) <= _MOST_FOLDED * len(expected)
    if comparable and _folded(output) == _folded(expected):
        return True
    wanted = _NUMBER.fullmatch(expected)
    if wanted is None or not (mode == "floats" or _PLAIN.fullmatch(expected) or _POINTED.fullmatch(expected)):
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
        return _within(left, right, *given)
    return not integer and _within(left, right, _TOLERANCE, _TOLERANCE)


_Decimal = tuple[bool, bytes, int]
"""Sign, significant digits (no zero at either end), power of ten. Equal numbers are equal tuples."""


def _decimal(match: re.Match[bytes]) -> _Decimal | None:
    """The number a match spells; None when its exponent is absurd (so only equal text matches)."""
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


def _within(found: _Decimal, wanted: _Decimal, absolute: float, relative: float) -> bool:
    left, right = _float(found), _float(wanted)
    difference = abs(left - right)
    # An infinite double is a number too large to hold: only exact equality (above) can match it.
    if difference == float("inf") or difference != difference:
        return False
    return difference <= absolute * _SLACK or difference <= relative * abs(right) * _SLACK


def _float(value: _Decimal) -> float:
    negative, digits, power = value
    # 40 digits decide a double; more only cost time.
    text = f"{digits[:40].decode() or '0'}e{power + max(0, len(digits) - 40)}"
    return -float(text) if negative else float(text)


def _show(text: bytes, width: int = 40) -> str:
    shown = text[: width + 1].decode("utf-8", "replace")
    shown = shown[:width] + "…" if len(shown) > width else shown
    return repr(shown) if shown else "nothing"

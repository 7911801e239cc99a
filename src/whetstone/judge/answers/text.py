"""Printed text against expected text: the comparison modes of ``problem.Compare``.

Modes that reproduce other judges are in ``compare_foreign``.

Everything is done on bytes, because a program may print what is not text at all. Numbers are
recognised by their ASCII spelling only (so ``nan``, ``inf``, ``1_0`` and digits of other scripts are
words), and are held side by side as digit strings, so that a number of a million digits is compared
in linear time and without rounding.
"""

from __future__ import annotations

import re
from collections import Counter

from whetstone.judge.answers.foreign import FOREIGN
from whetstone.problem import Compare

_NUMBER = re.compile(rb"([+-]?)(?:([0-9]+)(\.[0-9]*)?|(\.[0-9]+))(?:[eE]([+-]?[0-9]+))?")
# An expected 007 was padded on purpose: its width is part of the answer, unless numbers were asked for.
_PADDED = re.compile(rb"[+-]?0[0-9]+")
_TOLERANCE = 1e-6
_BLANK = b" \t\r\v\f"
# A tolerance is applied in double precision: this absorbs the rounding of the bounds themselves.
_SLACK = 1 + 1e-9


def compare(output: bytes, expected: str, rule: Compare) -> tuple[bool, str]:
    """Hold ``output`` against ``expected``; return (right, reason), the reason empty when right."""
    wanted = expected.encode("utf-8", "surrogatepass")
    foreign = FOREIGN.get(rule.mode)
    if foreign is not None:
        return foreign(output, wanted, rule)
    if rule.mode == "exact":
        return _exact(output, wanted)
    if rule.mode == "lines":
        return _sequence("line", _lines(output), _lines(wanted), None, rule)
    if rule.mode == "unordered_lines":
        return _unordered(_lines(output), _lines(wanted))
    if rule.mode == "ignore_case":
        return _sequence("token", _folded(output).split(), _folded(wanted).split(), "tokens", rule)
    return _sequence("token", output.split(), wanted.split(), rule.mode, rule)


def _exact(output: bytes, wanted: bytes) -> tuple[bool, str]:
    if output == wanted:
        return True, ""
    shared = min(len(output), len(wanted))
    place = next((i for i in range(shared) if output[i] != wanted[i]), shared)
    return False, f"byte {place + 1}: got {_show(output[place:])}, expected {_show(wanted[place:])}"


def _lines(text: bytes) -> list[bytes]:
    """Lines without trailing blanks, and without empty lines at the end."""
    lines = [line.rstrip(_BLANK) for line in text.split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _folded(text: bytes) -> bytes:
    return text.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def _unordered(output: list[bytes], wanted: list[bytes]) -> tuple[bool, str]:
    """The same lines, each as often; where lines have no order, empty ones have no meaning."""
    found, needed = Counter(filter(None, output)), Counter(filter(None, wanted))
    if found == needed:
        return True, ""
    missing = next(iter(needed - found), None)
    if missing is not None:
        return False, f"line {_show(missing)} is missing"
    return False, f"line {_show(next(iter(found - needed)))} is not expected"


def _sequence(
    unit: str, output: list[bytes], wanted: list[bytes], mode: str | None, rule: Compare
) -> tuple[bool, str]:
    if output == wanted:
        return True, ""
    for place, (left, right) in enumerate(zip(output, wanted, strict=False)):
        if left != right and not (mode and _tokens_match(left, right, mode, rule)):
            return False, f"{unit} {place + 1}: got {_show(left)}, expected {_show(right)}"
    if len(output) != len(wanted):
        return False, f"{len(output)} {unit}s, expected {len(wanted)}"
    return True, ""


def _tokens_match(output: bytes, expected: bytes, mode: str, rule: Compare) -> bool:
    """Whether a token that differs in spelling is still the expected number."""
    wanted = _NUMBER.fullmatch(expected)
    if wanted is None or (mode == "tokens" and _PADDED.fullmatch(expected)):
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

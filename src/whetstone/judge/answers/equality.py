"""When two plain values are the same answer: the comparison of ``call`` tests.

Standard library only. The returned value was read by ``inert``, the expected one is JSON or a literal: exact
builtin types, so that no method of a program ever runs here, and no hash that it chose is looked up.

- ``bool`` is 0 or 1, and numbers of all types compare by value. An expected float is met within
  1e-9 relative; an expected integer exactly. ``nan`` is met by ``nan`` alone. A string is never a number.
- list, tuple, deque and range are all sequences. A mapping is a dict.
- A set meets a set of the same elements, and nothing else does. JSON has no sets, so a problem whose
  answer is one says it in ``assert`` tests: a set that met a list would solve "sort the distinct items".
- JSON has only string keys: where every expected key is a string, a returned key that is not one
  counts as the string that ``json.dumps`` would write for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from whetstone.judge.answers.inert import (
    DEQUE,
    Inert,
    elements_of,
    keyed,
    longest,
    pairs_of,
    same_keys,
    size_of,
)

RELATIVE_TOLERANCE = 1e-9
_NUMBERS = (bool, int, float, complex, Decimal, Fraction)
_SEQUENCES = (list, tuple, deque, range)
_SCALARS = frozenset((bool, int, float, str, type(None)))
_SETS = (set, frozenset)
_INEXACT = (float, complex)
# Two sets that differ only within float tolerance are matched in pairs, quadratically: so, few.
_MAX_INEXACT_ELEMENTS = 300
_DIGITS_OF_A_LOOK = 8
_MAX_INEXACT_PAIRS = 1_000_000
"""Of an element with an item of another, over sets inside sets too."""


def equal(actual: object, expected: object) -> bool:
    """True when ``actual`` is the answer ``expected``, by the rules above."""
    return _Comparison().equal(actual, expected)


class _Comparison:
    """Compares two values, counting what sets may ask for beyond one look at every item."""

    def __init__(self) -> None:
        self._pairs = _MAX_INEXACT_PAIRS

    def equal(self, actual: object, expected: object) -> bool:
        """``equal``, for a part of the values."""
        if isinstance(expected, _NUMBERS):
            return isinstance(actual, _NUMBERS) and _numbers_equal(actual, expected)
        if isinstance(expected, _SETS):
            return self._sets(elements_of(actual), cast("list[object]", elements_of(expected)))
        if isinstance(expected, _SEQUENCES):
            if isinstance(actual, Inert):
                actual = actual.items if actual.kind == DEQUE else None
            return isinstance(actual, _SEQUENCES) and self._sequences(
                cast("list[object]", actual), cast("list[object]", expected)
            )
        if isinstance(expected, dict):
            return self._mappings(pairs_of(actual), cast("dict[object, object]", expected))
        if isinstance(expected, (bytes, bytearray)):
            return isinstance(actual, (bytes, bytearray)) and actual == expected
        # str, None, Ellipsis, dates: the same type and the same value.
        return type(actual) is type(expected) and actual == expected

    def _sequences(self, actual: Any, expected: Any) -> bool:
        size = _length(actual)
        if size != _length(expected):
            return False
        # Python knows soon that scalars are equal; only where they differ is there more to ask.
        if _SCALARS.issuperset(map(type, actual)) and list(actual) == list(expected):
            return True
        # Loops, not all(...): a generator would cost a stack frame at every level of nesting.
        for left, right in zip(actual, expected, strict=True):  # noqa: SIM110
            if not self.equal(left, right):
                return False
        return True

    def _sets(self, actual: list[Any] | None, expected: list[Any]) -> bool:
        if actual is None or len(actual) != len(expected):
            return False
        if same_keys(actual, expected):
            return True
        if len(actual) > _MAX_INEXACT_ELEMENTS or not any(_has_inexact(item) for item in expected):
            return False
        return self._matched(actual, expected)

    def _matched(self, left: list[Any], right: list[Any]) -> bool:
        """Every element of ``left`` paired with one of ``right`` of its own."""
        rest = [(item, size_of(item)) for item in right]
        for item in left:
            weight = _weight(item)
            for place, (candidate, size) in enumerate(rest):
                self._pairs -= size + weight
                if self._pairs < 0:
                    return False
                if self.equal(item, candidate):
                    del rest[place]
                    break
            else:
                return False
        return not rest

    def _mappings(self, pairs: list[tuple[Any, Any]] | None, expected: dict[Any, Any]) -> bool:
        if pairs is None or len(pairs) != len(expected):
            return False
        wanted: dict[Any, Any] | None = expected
        if all(type(key) is str for key in expected):
            found: dict[Any, Any] | None = {_json_key(key): value for key, value in pairs}
            found = found if len(found) == len(pairs) else None
        else:
            wanted = keyed(expected.items())
            found = keyed(pairs, longest(wanted))
        if found is None or wanted is None:
            return False
        for key, value in wanted.items():
            if key not in found or not self.equal(found[key], value):
                return False
        return True


def _weight(value: object) -> int:
    """What is read of the numbers of a value each time that it is compared, beside one look at each."""
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, (list, tuple, set, frozenset, deque)):
            stack += cast("Iterable[object]", item)
        elif isinstance(item, Inert):
            stack += item.items
        elif isinstance(item, Decimal):
            total += len(str(item)) // _DIGITS_OF_A_LOOK
        elif isinstance(item, Fraction):
            total += (item.numerator.bit_length() + item.denominator.bit_length()) // (3 * _DIGITS_OF_A_LOOK)
    return total


def _numbers_equal(actual: Any, expected: Any) -> bool:
    if isinstance(expected, Decimal) or isinstance(actual, Decimal):
        return _decimals_equal(actual, expected)
    if isinstance(expected, complex) or isinstance(actual, complex):
        return _close(actual.real, expected.real) and _close(actual.imag, expected.imag)
    return _close(actual, expected)


def _close(actual: Any, expected: Any) -> bool:
    """Real numbers; the expected one decides whether there is a tolerance."""
    if actual == expected:
        return True
    if not isinstance(expected, float):
        return False
    if math.isnan(expected):
        return isinstance(actual, float) and math.isnan(actual)
    try:
        found = float(actual)
    except OverflowError:
        return False
    if math.isinf(expected) or not math.isfinite(found):
        return False
    return abs(found - expected) <= RELATIVE_TOLERANCE * max(abs(found), abs(expected))


def _decimals_equal(actual: Any, expected: Any) -> bool:
    for value in (actual, expected):
        if isinstance(value, Decimal) and not value.is_finite():
            other = expected if value is actual else actual
            return isinstance(other, (Decimal, float)) and str(other).lower() == str(value).lower()
        if isinstance(value, (complex, Fraction)) or (
            isinstance(value, int) and value.bit_length() > 100_000
        ):
            return False
    if actual == expected:
        return True
    return isinstance(expected, float) and _close(float(actual), expected)


def _length(sequence: Any) -> int:
    try:
        return len(sequence)
    except OverflowError:  # a range of 2**63 items or more, longer than anything that is expected
        return -1


def _has_inexact(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_inexact(item) for item in cast("Iterable[object]", value))
    return isinstance(value, _INEXACT)


def _json_key(key: object) -> str | None:
    """A key of text, or the text that json.dumps writes for another key; None where it writes none."""
    if type(key) is str:
        return key
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key) if key.bit_length() < 4000 else None
    return repr(key) if isinstance(key, float) else None

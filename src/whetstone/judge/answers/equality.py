"""The comparison of ``call`` tests: when two plain values are the same answer.

Standard library only. ``inert`` reads the returned value, and the expected one is JSON or a literal. Both
have exact builtin types. So no method of a program runs here, and no hash that a program chose is used.

- ``bool`` is 0 or 1, and numbers of all types compare by value. An expected float has a relative tolerance of
  1e-9; an expected integer has none. ``nan`` equals ``nan`` only. A string never equals a number.
  A problem may allow more, for integers too (``Tolerance``).
- list, tuple, deque and range are all sequences. A mapping is a dict.
- A set equals only a set with the same elements. JSON has no sets, so a problem whose answer is one uses
  ``assert`` tests. If a set could equal a list, it would solve "sort the distinct items".
- JSON has only string keys. If all expected keys are strings, any other returned key is converted to the
  string that ``json.dumps`` would write for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, cast

from whetstone.judge.answers.inert import (
    DEQUE,
    Inert,
    by_key,
    elements_of,
    longest_key,
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
# Sets that differ only within the float tolerance are compared pair by pair, in quadratic time. So they must
# be small.
_MAX_INEXACT_ELEMENTS = 300
_DIGITS_PER_UNIT = 8
# The limit of all comparisons of pairs of elements, including sets inside sets.
_MAX_INEXACT_PAIRS = 1_000_000


# The bounds are computed in double precision. This factor absorbs their rounding.
_ROUNDING_FACTOR = 1 + 1e-9


class Tolerance(NamedTuple):
    """The error of numbers that a problem allows in addition: ``abs``, or ``rel`` times the expected one."""

    abs: float = 0.0
    rel: float = 0.0
    integers: bool = False
    """Whether expected integers have it, as floats do."""


_USUAL = Tolerance()


def equal(actual: object, expected: object, tolerance: Tolerance = _USUAL) -> bool:
    """Return whether ``actual`` is the answer ``expected``, by the rules in the module docstring."""
    return _Comparison(tolerance).equal(actual, expected)


class _Comparison:
    """Compares two values, and limits the additional work that sets can cause."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self._comparisons_left = _MAX_INEXACT_PAIRS

    def equal(self, actual: object, expected: object) -> bool:
        """Compare two parts of the values."""
        if isinstance(expected, _NUMBERS):
            return isinstance(actual, _NUMBERS) and _numbers_equal(actual, expected, self._tolerance)
        if isinstance(expected, _SETS):
            return self._sets_equal(elements_of(actual), cast("list[object]", elements_of(expected)))
        if isinstance(expected, _SEQUENCES):
            if isinstance(actual, Inert):
                actual = actual.items if actual.kind == DEQUE else None
            return isinstance(actual, _SEQUENCES) and self._sequences_equal(
                cast("list[object]", actual), cast("list[object]", expected)
            )
        if isinstance(expected, dict):
            return self._mappings_equal(pairs_of(actual), cast("dict[object, object]", expected))
        if isinstance(expected, (bytes, bytearray)):
            return isinstance(actual, (bytes, bytearray)) and actual == expected
        # str, None, Ellipsis, dates: the same type and the same value.
        return type(actual) is type(expected) and actual == expected

    def _sequences_equal(self, actual: Any, expected: Any) -> bool:
        length = _length(actual)
        if length != _length(expected):
            return False
        # Python compares scalars fast. Only different ones need the rules of this module.
        if _SCALARS.issuperset(map(type, actual)) and list(actual) == list(expected):
            return True
        # A loop, because the generator of all(...) would cost a stack frame for each level of nesting.
        for left, right in zip(actual, expected, strict=True):  # noqa: SIM110
            if not self.equal(left, right):
                return False
        return True

    def _sets_equal(self, actual: list[Any] | None, expected: list[Any]) -> bool:
        if actual is None or len(actual) != len(expected):
            return False
        if same_keys(actual, expected):
            return True
        if len(actual) > _MAX_INEXACT_ELEMENTS or not any(_has_inexact(item) for item in expected):
            return False
        return self._match_inexact_elements(actual, expected)

    def _match_inexact_elements(self, left: list[Any], right: list[Any]) -> bool:
        """Return whether each element of ``left`` has an equal element of ``right`` of its own."""
        rest = [(item, size_of(item)) for item in right]
        for item in left:
            item_work = _number_work(item)
            for place, (candidate, candidate_work) in enumerate(rest):
                self._comparisons_left -= candidate_work + item_work
                if self._comparisons_left < 0:
                    return False
                if self.equal(item, candidate):
                    del rest[place]
                    break
            else:
                return False
        return not rest

    def _mappings_equal(self, pairs: list[tuple[Any, Any]] | None, expected: dict[Any, Any]) -> bool:
        if pairs is None or len(pairs) != len(expected):
            return False
        wanted: dict[Any, Any] | None = expected
        if all(type(key) is str for key in expected):
            found: dict[Any, Any] | None = {json_key(key): value for key, value in pairs}
            found = found if len(found) == len(pairs) else None
        else:
            wanted = by_key(expected.items())
            found = by_key(pairs, longest_key(wanted))
        if found is None or wanted is None:
            return False
        for key, value in wanted.items():
            if key not in found or not self.equal(found[key], value):
                return False
        return True


def _number_work(value: object) -> int:
    """Return the work of reading the numbers of a value once more, in units of ``_DIGITS_PER_UNIT``
    digits."""
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, (list, tuple, set, frozenset, deque)):
            stack += cast("Iterable[object]", item)
        elif isinstance(item, Inert):
            stack += item.items
        elif isinstance(item, Decimal):
            total += len(str(item)) // _DIGITS_PER_UNIT
        elif isinstance(item, Fraction):
            total += (item.numerator.bit_length() + item.denominator.bit_length()) // (3 * _DIGITS_PER_UNIT)
    return total


def _numbers_equal(actual: Any, expected: Any, tolerance: Tolerance) -> bool:
    if isinstance(expected, Decimal) or isinstance(actual, Decimal):
        return _decimals_equal(actual, expected, tolerance)
    if isinstance(expected, complex) or isinstance(actual, complex):
        return is_close(actual.real, expected.real, tolerance) and is_close(
            actual.imag, expected.imag, tolerance
        )
    return is_close(actual, expected, tolerance)


def is_close(actual: Any, expected: Any, tolerance: Tolerance = _USUAL) -> bool:
    """Compare real numbers. The type of the expected one decides whether there is a tolerance."""
    if actual == expected:
        return True
    if not isinstance(expected, float) and not (tolerance.integers and type(expected) is int):
        return False
    try:
        found, wanted = float(actual), float(expected)
    except OverflowError:
        return False
    if math.isnan(wanted):
        return isinstance(actual, float) and math.isnan(actual)
    if math.isinf(wanted) or not math.isfinite(found):
        return False
    difference = abs(found - wanted)
    return (
        difference <= RELATIVE_TOLERANCE * max(abs(found), abs(wanted))
        or difference <= max(tolerance.abs, tolerance.rel * abs(wanted)) * _ROUNDING_FACTOR
    )


def _decimals_equal(actual: Any, expected: Any, tolerance: Tolerance) -> bool:
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
    return not isinstance(expected, Decimal) and is_close(float(actual), expected, tolerance)


def _length(sequence: Any) -> int:
    try:
        return len(sequence)
    # A range of 2**63 items or more has no len(). No expected value is that long.
    except OverflowError:
        return -1


def _has_inexact(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_inexact(item) for item in cast("Iterable[object]", value))
    return isinstance(value, _INEXACT)


def json_key(key: object) -> str | None:
    """Return a string key, or the string that json.dumps writes for another key; None if it writes none."""
    if type(key) is str:
        return key
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key) if key.bit_length() < 4000 else None
    return repr(key) if isinstance(key, float) else None

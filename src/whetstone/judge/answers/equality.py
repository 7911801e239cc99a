"""When two plain values are the same answer: the comparison of ``call`` tests.

Standard library only. Both sides are values that ``values.decode`` built, or JSON: exact builtin
types, so that no method of a program ever runs here.

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
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

RELATIVE_TOLERANCE = 1e-9
_NUMBERS = (bool, int, float, complex, Decimal, Fraction)
_SEQUENCES = (list, tuple, deque, range)
_SETS = (set, frozenset)
_INEXACT = (float, complex)
# Two sets that differ only within float tolerance are matched in pairs, quadratically: so, few.
_MAX_INEXACT_ELEMENTS = 300


def equal(actual: object, expected: object) -> bool:
    """True when ``actual`` is the answer ``expected``, by the rules above."""
    if isinstance(expected, _NUMBERS):
        return isinstance(actual, _NUMBERS) and _numbers_equal(actual, expected)
    if isinstance(expected, _SETS):
        return isinstance(actual, _SETS) and _sets_equal(actual, expected)
    if isinstance(expected, _SEQUENCES):
        return isinstance(actual, _SEQUENCES) and _sequences_equal(
            cast("list[object]", actual), cast("list[object]", expected)
        )
    if isinstance(expected, dict):
        return isinstance(actual, dict) and _mappings_equal(
            cast("dict[object, object]", actual), cast("dict[object, object]", expected)
        )
    if isinstance(expected, (bytes, bytearray)):
        return isinstance(actual, (bytes, bytearray)) and actual == expected
    # str, None, Ellipsis, dates: the same type and the same value.
    return type(actual) is type(expected) and actual == expected


def show(value: object, width: int = 60) -> str:
    """A short text of a plain value, for a reason. Never fails, never slow."""
    text = _show(value, width)
    return text if len(text) <= width else text[: width - 1] + "…"


def _show(value: object, width: int) -> str:
    if type(value) is int and value.bit_length() > 4000:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (str, bytes, bytearray)):
        return repr(value[: width + 1])
    if isinstance(value, (list, tuple, set, frozenset, deque, dict)):
        items: list[str] = []
        pairs = cast("Mapping[object, object]", value).items() if isinstance(value, dict) else None
        for item in pairs if pairs is not None else cast("Iterable[object]", value):
            if sum(map(len, items)) > width:
                break
            if pairs is not None:
                key, entry = cast("tuple[object, object]", item)
                items.append(f"{_show(key, width)}: {_show(entry, width)}")
            else:
                items.append(_show(item, width))
        brackets = "()" if isinstance(value, tuple) else "[]" if isinstance(value, (list, deque)) else "{}"
        return brackets[0] + ", ".join(items) + brackets[1]
    try:
        return repr(value)
    except ValueError:
        return f"a value of type {type(value).__name__}"


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


def _sequences_equal(actual: Any, expected: Any) -> bool:
    if _length(actual) != _length(expected):
        return False
    # Loops, not all(...): a generator would cost a stack frame at every level of nesting.
    for left, right in zip(actual, expected, strict=True):  # noqa: SIM110
        if not equal(left, right):
            return False
    return True


def _length(sequence: Any) -> int:
    try:
        return len(sequence)
    except OverflowError:  # a range of 2**63 items or more, longer than anything that is expected
        return -1


def _sets_equal(actual: Any, expected: Any) -> bool:
    if len(actual) != len(expected):
        return False
    if not actual.symmetric_difference(expected):
        return True
    if len(actual) > _MAX_INEXACT_ELEMENTS or not any(_has_inexact(item) for item in expected):
        return False
    return _matched(list(actual), list(expected))


def _matched(left: list[Any], right: list[Any]) -> bool:
    """Every element of ``left`` paired with one of ``right`` of its own."""
    rest = right
    for item in left:
        for place, candidate in enumerate(rest):
            if equal(item, candidate):
                rest = rest[:place] + rest[place + 1 :]
                break
        else:
            return False
    return not rest


def _has_inexact(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_inexact(item) for item in cast("Iterable[object]", value))
    return isinstance(value, _INEXACT)


def _mappings_equal(actual: dict[Any, Any], expected: dict[Any, Any]) -> bool:
    if len(actual) != len(expected):
        return False
    if all(type(key) is str for key in expected) and not all(type(key) is str for key in actual):
        named = {_json_key(key): value for key, value in actual.items()}
        if len(named) != len(actual):
            return False
        actual = named
    for key, value in expected.items():  # noqa: SIM110
        if key not in actual or not equal(actual[key], value):
            return False
    return True


def _json_key(key: object) -> object:
    """The string json.dumps writes for a key; keys that JSON does not know stay what they are."""
    if key is None:
        return "null"
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key) if key.bit_length() < 4000 else key
    if isinstance(key, float):
        return repr(key)
    return key

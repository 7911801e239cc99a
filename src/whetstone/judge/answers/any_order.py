"""The comparison of returned values that a problem sets: order, repeated items, letter case, tolerance.

Both values are sorted by one order, and then compared. So every accepted value is a permutation of
the expected one whose items are all equal by the rules of ``equality``. Items are sorted by keys of bytes,
never paired in all combinations and never hashed by Python: n items cost n log n, whatever a program returns.

The key of a number stands for the expected numbers near it, since items that are equal within a tolerance
must sort alike. Numbers in a chain of close neighbours have one key. If such items were paired wrongly, they
are sorted once more with a key for each expected number.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import msgspec

from whetstone.core.problem import Compare
from whetstone.judge.answers.equality import RELATIVE_TOLERANCE, Tolerance, equal, is_close, json_key
from whetstone.judge.answers.inert import (
    DEQUE,
    FREE_ITEMS,
    MAPPING,
    SET,
    Inert,
    elements_of,
    key_of,
    pairs_of,
    size_of,
)

# The depths of the lists that may be in any order.
_DEPTHS = {"any": frozenset({0}), "inner": frozenset({1}), "all": frozenset({0, 1})}
_KEY_BYTES = 16
_Real = int | float
_encode = msgspec.msgpack.Encoder().encode


class _Unmatched(Exception):
    """A value that equals no part of the expected one."""


class _Sorted(NamedTuple):
    """A value in order. ``key`` is the same for items that may be equal; ``number`` orders these."""

    value: Any
    key: bytes
    number: _Real = 0


class ValueComparison:
    """Compares returned values by a comparison of the mode ``values``. It is a ``ValueRule``."""

    def __init__(self, compare: Compare) -> None:
        stated = compare.abs is not None or compare.rel is not None
        self._tolerance = Tolerance(compare.abs or 0.0, compare.rel or 0.0, integers=stated)
        self._depths = _DEPTHS[compare.order] if compare.order else frozenset[int]()
        self._any_case = bool(compare.any_case)
        self._ignore_repeats = bool(compare.ignore_repeats)

    def __call__(self, value: object, expected: object, args: Sequence[Any]) -> bool:
        """Return whether a value is right."""
        if not self._depths and not self._any_case:
            return equal(value, expected, self._tolerance)
        if not (self._any_case or self._ignore_repeats):
            if self._quickly_same(value, expected):
                return True
            if 0 in self._depths and not _same_length(value, expected):
                return False
        try:
            numbers = _ExpectedNumbers(_numbers_in(expected), self._tolerance)
            # Of items with one key, one is kept, so each must then be close to one expected number.
            if not self._ignore_repeats and self._same(value, expected, numbers):
                return True
            if not (self._ignore_repeats or numbers.has_chains):
                return False
            return self._same(value, expected, numbers.apart())
        except _Unmatched:
            return False

    def _quickly_same(self, value: object, expected: object) -> bool:
        """Return whether lists of common types are the same if their items are sorted by their encoding."""
        if not (isinstance(value, list) and isinstance(expected, list)):
            return False
        try:
            both = [self._by_encoding(cast("list[Any]", one)) for one in (value, expected)]
        # Other types, long integers, and text that is not Unicode.
        except (TypeError, OverflowError, ValueError, RecursionError):
            return False
        return equal(both[0], both[1], self._tolerance)

    def _by_encoding(self, items: list[Any]) -> list[Any]:
        if 1 in self._depths:
            items = [sorted(item, key=_encode) if isinstance(item, list) else item for item in items]
        return sorted(items, key=_encode) if 0 in self._depths else items

    def _same(self, value: object, expected: object, numbers: _ExpectedNumbers) -> bool:
        ranges_left = FREE_ITEMS + 4 * size_of(expected)
        both = [
            _Ordering(numbers, self._depths, self._any_case, self._ignore_repeats, ranges_left)
            .ordered(one, 0)
            .value
            for one in (value, expected)
        ]
        return equal(both[0], both[1], self._tolerance)


class _ExpectedNumbers:
    """The numbers in the expected value, sorted, with a key for each."""

    def __init__(self, numbers: Iterable[_Real], tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self._sorted: list[_Real] = []
        # Of equal numbers the float is kept, because it has a tolerance.
        for number in sorted(numbers, key=lambda n: (n, type(n) is not float)):
            if not self._sorted or self._sorted[-1] != number:
                self._sorted.append(number)
        self._groups: list[int] = []
        for place, number in enumerate(self._sorted):
            near = place > 0 and self._overlap(self._sorted[place - 1], number)
            self._groups.append(self._groups[-1] if near else place)

    @property
    def has_chains(self) -> bool:
        """Whether some expected numbers are so close that they have one key."""
        return self._groups != list(range(len(self._groups)))

    def apart(self) -> _ExpectedNumbers:
        """Return the same numbers with a key for each."""
        other = _ExpectedNumbers((), self._tolerance)
        other._sorted, other._groups = self._sorted, list(range(len(self._sorted)))
        return other

    def key(self, number: _Real) -> bytes:
        """Return the key of the nearest expected number. Raises _Unmatched if none is close enough."""
        if type(number) is float and not math.isfinite(number):
            return b"?%r" % number
        place = bisect_left(self._sorted, number)
        around = [n for n in (place - 1, place) if 0 <= n < len(self._sorted)]
        for near in sorted(around, key=lambda n: _distance(self._sorted[n], number)):
            if is_close(number, self._sorted[near], self._tolerance):
                return b"#%d" % self._groups[near]
        raise _Unmatched

    def _overlap(self, lower: _Real, upper: _Real) -> bool:
        return _distance(lower, upper) <= self._reach(lower) + self._reach(upper)

    def _reach(self, number: _Real) -> float:
        """Return how far a number may be from this expected one."""
        if type(number) is not float and not self._tolerance.integers:
            return 0.0
        size = abs(_as_float(number))
        return max(self._tolerance.abs, self._tolerance.rel * size, 2 * RELATIVE_TOLERANCE * size)


class _Ordering:
    """Brings one value into order."""

    def __init__(
        self,
        numbers: _ExpectedNumbers,
        depths: frozenset[int],
        any_case: bool,
        ignore_repeats: bool,
        ranges_left: int,
    ) -> None:
        """``ranges_left``: the number of items that ranges may have together."""
        self._numbers = numbers
        self._depths = depths
        self._any_case = any_case
        self._ignore_repeats = ignore_repeats
        self._ranges_left = ranges_left

    def ordered(self, value: Any, depth: int) -> _Sorted:
        """Return a value in order, with its key. Raises _Unmatched."""
        if isinstance(value, str):
            text = value.casefold() if self._any_case else value
            return _Sorted(text, _short(b"s" + text.encode("utf-8", "surrogatepass")))
        if isinstance(value, complex):
            parts = [self._numbers.key(part) for part in (value.real, value.imag)]
            return _Sorted(value, parts[0] if value.imag == 0 else b" ".join(parts))
        if isinstance(value, int | float | Decimal | Fraction):
            number = _real(value)
            return _Sorted(value, self._numbers.key(number), number)
        if isinstance(value, list | tuple | deque | range) or (
            isinstance(value, Inert) and value.kind == DEQUE
        ):
            return self._sequence(value, depth)
        if (pairs := pairs_of(value)) is not None:
            return self._mapping(value, pairs, depth)
        if (elements := elements_of(value)) is not None:
            return self._set(value, elements, depth)
        return _Sorted(value, _short(b"o" + _key_bytes(value)))

    def _sequence(self, value: Any, depth: int) -> _Sorted:
        if isinstance(value, range):
            try:
                self._ranges_left -= len(value)
            except OverflowError:
                raise _Unmatched from None
            if self._ranges_left < 0:
                raise _Unmatched
        items = value.items if isinstance(value, Inert) else cast("Iterable[Any]", value)
        found = [self.ordered(item, depth + 1) for item in items]
        if depth in self._depths:
            found.sort(key=lambda item: (item.key, item.number))
            if self._ignore_repeats:
                found = [
                    item for place, item in enumerate(found) if not place or found[place - 1].key != item.key
                ]
        return _Sorted([item.value for item in found], _joined(b"l", [item.key for item in found]))

    def _set(self, value: Any, elements: list[Any], depth: int) -> _Sorted:
        """Return a set with its key. Sets have no order, so only the letter case of text is changed."""
        by_key = {self.ordered(element, depth + 1).key: element for element in elements}
        key = _joined(b"z", sorted(by_key))
        if not self._any_case:
            return _Sorted(value, key)
        folded = [e.casefold() if isinstance(e, str) else e for e in by_key.values()]
        return _Sorted(Inert(SET, folded) if isinstance(value, Inert) else set(folded), key)

    def _mapping(self, value: Any, pairs: list[tuple[Any, Any]], depth: int) -> _Sorted:
        found = [(key, self.ordered(item, depth + 1)) for key, item in pairs]
        keys = sorted(_joined(b"p", [_name_bytes(key), item.key]) for key, item in found)
        if isinstance(value, dict):
            return _Sorted({key: item.value for key, item in found}, _joined(b"d", keys))
        flat = [part for key, item in found for part in (key, item.value)]
        return _Sorted(Inert(MAPPING, flat), _joined(b"d", keys))


def _same_length(value: Any, expected: Any) -> bool:
    items: Any = value.items if isinstance(value, Inert) and value.kind == DEQUE else value
    try:
        return not isinstance(expected, list | tuple) or len(items) == len(cast("list[Any]", expected))
    except (TypeError, OverflowError):
        return False


def _numbers_in(value: Any) -> Iterator[_Real]:
    """Yield the finite real numbers in an expected value."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += cast("dict[Any, Any]", item).values()
        elif isinstance(item, list | tuple | set | frozenset | deque | range):
            pending += cast("Iterable[Any]", item)
        elif isinstance(item, complex):
            pending += (item.real, item.imag)
        elif isinstance(item, int | float | Decimal | Fraction):
            number = _real(item)
            if type(number) is int or math.isfinite(number):
                yield number


def _real(value: Any) -> _Real:
    """Return a number as int or float, which can all be compared with each other."""
    if isinstance(value, int):
        return int(value)
    try:
        return float(value)
    except (OverflowError, ValueError):
        raise _Unmatched from None


def _as_float(number: _Real) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _distance(one: _Real, other: _Real) -> _Real:
    if type(one) is int and type(other) is int:
        return abs(one - other)
    return abs(_as_float(one) - _as_float(other))


def _short(key: bytes) -> bytes:
    """Return a key of bounded length that is equal for equal keys only."""
    return key if len(key) < _KEY_BYTES else b"~" + blake2b(key, digest_size=_KEY_BYTES).digest()


def _joined(kind: bytes, keys: list[bytes]) -> bytes:
    return _short(kind + b"".join(b"%d:" % len(key) + key for key in keys))


def _name_bytes(key: object) -> bytes:
    """Return the key of a mapping's key, by the text that JSON has for it."""
    name = json_key(key)
    return _key_bytes(key) if name is None else b"s" + name.encode("utf-8", "surrogatepass")


def _key_bytes(value: object) -> bytes:
    try:
        key = key_of(bytes(value) if isinstance(value, bytearray) else value)
    except TypeError:
        raise _Unmatched from None
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key

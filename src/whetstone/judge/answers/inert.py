"""What a program returned, read for comparison by a process that must not be made to work.

Sets, mappings and deques stay lists of what they hold (``Inert``): no hash table is made of what a program
chose. Python's hashes of numbers and tuples are known, so that keys can be found which collide, wholly or in
a table of one size, and then every look-up takes time in proportion to the table. ``key_of`` writes a key as
bytes instead, equal ones alike, whose hash is seeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import count
from struct import pack
from typing import Any, cast

from whetstone.judge.value_reader import TAGS, ItemReader, Reader, WireError, table

SET, MAPPING, DEQUE = "set", "mapping", "deque"
FREE_ITEMS = 250_000
"""Items of a value that are always read; beyond them, four times as many as the expected value has."""
_FREE_BYTES = 1 << 20
_HOLDERS = (dict, list, tuple, set, frozenset)
_FLOAT_DIGITS = 800
"""More significant digits than any float has, written in full."""
_HEX_PER_DIGIT = 0.83
"""At least so many hexadecimal digits stand for a decimal one."""
_serial = count()


class Unkeyable(TypeError):
    """A value that can be no key, or a longer one than any that is looked for."""


class Inert:
    """A set, a mapping (keys and values in turn) or a deque that was read and not built.

    Its ``==`` is that of the builtin type: with real ones, and with others of its kind.
    """

    __slots__ = ("items", "kind")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: str, items: list[Any]) -> None:
        self.kind = kind
        self.items = items

    def __eq__(self, other: object) -> bool:
        if self.kind == SET:
            return same_keys(self.items, elements_of(other))
        if self.kind == MAPPING:
            return self._same_pairs(other)
        return False

    def _same_pairs(self, other: object) -> bool:
        pairs = pairs_of(other)
        if pairs is None or 2 * len(pairs) != len(self.items):
            return False
        wanted = keyed(pairs)
        found = keyed(zip(self.items[::2], self.items[1::2], strict=True), longest(wanted))
        return (
            found is not None
            and wanted is not None
            and found.keys() == wanted.keys()
            and all(found[key] == value for key, value in wanted.items())
        )


def read_each(data: bytes, expected: Callable[[], Iterable[object]]) -> list[Any]:
    """Values that stand one after the other, sets and mappings unbuilt. Raises WireError on anything else.

    Long data may hold ``FREE_ITEMS`` items, and four times as many as all the ``expected`` values.
    """
    most = None if len(data) <= _FREE_BYTES else FREE_ITEMS + 4 * sum(map(size_of, expected()))
    reader = Reader(data, readers=_UNBUILT, most_items=most)
    values: list[Any] = []
    while reader.position < len(data):
        values.append(reader.value())
    return values


def read_one(data: bytes, expected: object) -> Any:
    """The same for one value. Raises WireError."""
    values = read_each(data, lambda: [expected])
    if len(values) != 1:
        raise WireError("not one value")
    return values[0]


def size_of(value: object) -> int:
    """How many items a value holds, at any depth, itself included."""
    total, stack = 1, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            pairs = cast("dict[object, object]", item)
            total += 2 * len(pairs)
            stack += [inner for inner in (*pairs.keys(), *pairs.values()) if isinstance(inner, _HOLDERS)]
        elif isinstance(item, list | tuple | set | frozenset):
            items = cast("Collection[object]", item)
            total += len(items)
            stack += [inner for inner in items if isinstance(inner, _HOLDERS)]
    return total


def elements_of(value: object) -> list[Any] | None:
    """What a set holds, built or not; None for anything else."""
    if isinstance(value, Inert):
        return value.items if value.kind == SET else None
    return list(cast("set[Any]", value)) if isinstance(value, set | frozenset) else None


def pairs_of(value: object) -> list[tuple[Any, Any]] | None:
    """Keys and values of a mapping, built or not; None for anything else."""
    if isinstance(value, Inert):
        items = value.items
        return list(zip(items[::2], items[1::2], strict=True)) if value.kind == MAPPING else None
    return list(cast("dict[Any, Any]", value).items()) if isinstance(value, dict) else None


def same_keys(found: list[Any], wanted: list[Any] | None) -> bool:
    """Whether two sets of so many elements, each once, are equal as Python says."""
    if wanted is None or len(found) != len(wanted):
        return False
    kinds = {*map(type, found), *map(type, wanted)}
    if kinds == {int} or kinds == {str}:
        return sorted(found) == sorted(wanted)
    try:
        needed = set(map(key_of, wanted))
        most = max(map(len, needed), default=0)
        return needed == {key_of(item, most) for item in found}
    except Unkeyable:
        return False


def keyed(pairs: Iterable[tuple[Any, Any]], most: int | None = None) -> dict[Any, Any] | None:
    """The values by ``key_of`` their keys; None where one is no key, longer than ``most``, or comes twice."""
    found: dict[Any, Any] = {}
    try:
        for key, value in pairs:
            name = key_of(key, most)
            if name in found:
                return None
            found[name] = value
    except Unkeyable:
        return None
    return found


def longest(named: dict[Any, Any] | None) -> int:
    """The length of the longest key of ``keyed``."""
    return max(map(len, named or ()), default=0)


def key_of(value: Any, most: float | None = None) -> str | bytes:
    """Text or bytes that are the same for equal keys, and for no others. Linear in what is read.

    A Decimal or Fraction that no int or float equals is its own kind. A nan equals nothing, itself included.
    Raises Unkeyable for what has no hash, and for a key of containers or of a Decimal that takes more than
    ``most`` bytes.
    """
    kind = type(value)
    if kind is str:
        return value
    if kind is int or kind is bool:
        return b"#%x" % value
    if kind is tuple or kind is frozenset or kind is Inert:
        return _Joined(most).key(value)
    if kind is Decimal:
        return _decimal_key(value, most)
    name = _KEYS.get(kind)
    if name is None:
        raise Unkeyable(f"unhashable: {kind.__name__}")
    return name(value)


class _Joined:
    """Writes tuples and frozen sets as one string of bytes."""

    def __init__(self, most: float | None) -> None:
        self._left = math.inf if most is None else most

    def key(self, value: Any) -> bytes:
        """The elements' keys, each behind its length; those of a set sorted."""
        if type(value) is tuple:
            tag, items = b"t", cast("Iterable[Any]", value)
        else:
            elements = elements_of(value)
            if elements is None:
                raise Unkeyable("unhashable")
            tag, items = b"z", elements
        parts: list[bytes] = []
        for item in items:
            nested = type(item) is tuple or type(item) is frozenset or type(item) is Inert
            key = self.key(item) if nested else key_of(item, self._left)
            part = b"s" + key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
            part = b"%x:" % len(part) + part
            # What is nested was counted; here, what surrounds it is.
            self._left -= 4 if nested else len(part)
            if self._left < 0:
                raise Unkeyable("longer than any key that is looked for")
            parts.append(part)
        if tag == b"z":
            parts = sorted(set(parts))
        return tag + b"".join(parts)


def _float_key(value: float) -> bytes:
    if value.is_integer():
        return b"#%x" % int(value)
    if math.isfinite(value):
        return b"." + pack("<d", value)
    return b"?%x" % next(_serial) if math.isnan(value) else b"+" if value > 0 else b"-"


def _complex_key(value: complex) -> bytes:
    if value.imag == 0:
        return _float_key(value.real)
    return b"C" + _float_key(value.real) + b"," + _float_key(value.imag)


def _decimal_key(value: Decimal, most: float | None = None) -> bytes:
    """Linear in the digits, but for an integer of at most ``most`` hexadecimal digits."""
    if not value.is_finite():
        return _float_key(float(str(value).replace("sNaN", "nan").rstrip("0123456789")))
    mantissa, _, exponent = format(value, "e").partition("e")
    digits = mantissa.lstrip("-").replace(".", "")
    whole = digits.rstrip("0")
    power = int(exponent) + 1 - len(whole)
    if len(whole) <= _FLOAT_DIGITS:
        near = float(value)
        if math.isfinite(near) and value == near:
            return _float_key(near)
    if 0 <= power <= len(digits):
        if most is not None and (len(whole) + power - 1) * _HEX_PER_DIGIT > most:
            raise Unkeyable("longer than any key that is looked for")
        return b"#%x" % int(value)
    return f"D{value.is_signed():d}{whole}e{power}".encode()


def _fraction_key(value: Fraction) -> bytes:
    if value.denominator == 1:
        return b"#%x" % value.numerator
    try:
        near = float(value)
    except OverflowError:
        near = math.inf
    if math.isfinite(near) and value == near:
        return _float_key(near)
    return b"Q%x/%x" % (value.numerator, value.denominator)


def _range_key(value: range) -> bytes:
    size = max(0, -((value.start - value.stop) // value.step))
    if size == 0:
        return b"R"
    return b"R%x %x" % (size, value.start) + (b" %x" % value.step if size > 1 else b"")


_KEYS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda v: b"N",
    type(...): lambda v: b"E",
    float: _float_key,
    complex: _complex_key,
    bytes: lambda v: b"b" + v,
    Fraction: _fraction_key,
    range: _range_key,
    date: lambda v: b"d" + v.isoformat().encode(),
    datetime: lambda v: b"m" + v.isoformat().encode(),
    time: lambda v: b"o" + v.isoformat().encode(),
    timedelta: lambda v: b"y%d %d %d" % (v.days, v.seconds, v.microseconds),
}


def _unbuilt(kind: str, per_item: int = 1) -> ItemReader:
    return lambda r, depth: Inert(kind, r.items(depth, per_item))


_UNBUILT = table(
    TAGS
    | dict.fromkeys((b"S", b"Z"), _unbuilt(SET))
    | dict.fromkeys((b"d", b"O", b"C"), _unbuilt(MAPPING, 2))
    | {b"E": _unbuilt(DEQUE)}
)

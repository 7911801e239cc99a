"""Read a returned value for comparison. A program must not be able to cause much work in this process.

Sets, mappings and deques stay lists of their contents (``Inert``): no hash table is made of values that a
program chose. Python's hashes of numbers and tuples are known, so a program can choose keys that collide.
Each look-up then takes time in proportion to the size of the table. ``key_of`` encodes a key as bytes, equal
keys as equal bytes. The hash of bytes is seeded, so collisions cannot be chosen.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import count
from struct import pack
from typing import Any, cast

from whetstone.judge.value_reader import TAGS, ItemReader, Reader, WireError, table

SET, MAPPING, DEQUE = "set", "mapping", "deque"
# Values may have this number of items plus four times the number of items of the expected value.
FREE_ITEMS = 250_000
_FREE_BYTES = 1 << 20
_CONTAINERS = (dict, list, tuple, set, frozenset)
# No float has more significant digits than this, written in full.
_FLOAT_DIGITS = 800
# A decimal digit corresponds to at least this number of hexadecimal digits.
_HEX_PER_DIGIT = 0.83
_serial = count()


class _Unkeyable(TypeError):
    """A value that cannot be a key, or that is longer than all expected keys."""


class Inert:
    """A set, a mapping (keys and values alternate) or a deque that was read but not constructed.

    It compares with ``==`` like the builtin type: with builtin objects, and with others of its kind.
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
            return self._pairs_equal(other)
        return False

    def _pairs_equal(self, other: object) -> bool:
        pairs = pairs_of(other)
        if pairs is None or 2 * len(pairs) != len(self.items):
            return False
        wanted = by_key(pairs)
        found = by_key(zip(self.items[::2], self.items[1::2], strict=True), longest_key(wanted))
        return (
            found is not None
            and wanted is not None
            and found.keys() == wanted.keys()
            and all(found[key] == value for key, value in wanted.items())
        )


def read_each(data: bytes, expected: Callable[[], Iterable[object]]) -> list[Any]:
    """Return the values in ``data``. Sets and mappings are not constructed. Raises WireError for invalid
    data.

    Long data may contain ``FREE_ITEMS`` items, plus four times the number of items of the ``expected``
    values.
    """
    max_items = None if len(data) <= _FREE_BYTES else FREE_ITEMS + 4 * sum(map(size_of, expected()))
    reader = Reader(data, readers=_UNBUILT, max_items=max_items)
    values: list[Any] = []
    while reader.position < len(data):
        values.append(reader.value())
    return values


def read_one(data: bytes, expected: object) -> Any:
    """Return the only value in ``data``. Raises WireError."""
    values = read_each(data, lambda: [expected])
    if len(values) != 1:
        raise WireError("not exactly one value")
    return values[0]


def size_of(value: object) -> int:
    """Return the number of items in a value, at any depth, including the value itself."""
    total, stack = 1, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            pairs = cast("dict[object, object]", item)
            total += 2 * len(pairs)
            stack += [inner for inner in (*pairs.keys(), *pairs.values()) if isinstance(inner, _CONTAINERS)]
        elif isinstance(item, list | tuple | set | frozenset):
            items = cast("Collection[object]", item)
            total += len(items)
            stack += [inner for inner in items if isinstance(inner, _CONTAINERS)]
    return total


def elements_of(value: object) -> list[Any] | None:
    """Return the elements of a set, constructed or not; None for any other value."""
    if isinstance(value, Inert):
        return value.items if value.kind == SET else None
    return list(cast("set[Any]", value)) if isinstance(value, set | frozenset) else None


def pairs_of(value: object) -> list[tuple[Any, Any]] | None:
    """Return the keys and values of a mapping, constructed or not; None for any other value."""
    if isinstance(value, Inert):
        items = value.items
        return list(zip(items[::2], items[1::2], strict=True)) if value.kind == MAPPING else None
    return list(cast("dict[Any, Any]", value).items()) if isinstance(value, dict) else None


def same_keys(found: list[Any], wanted: list[Any] | None) -> bool:
    """Return whether two sets are equal as in Python. Each list has every element of its set once."""
    if wanted is None or len(found) != len(wanted):
        return False
    kinds = {*map(type, found), *map(type, wanted)}
    # Most sets have one of these types. Sorting them is faster than encoding keys, and uses no hash.
    if kinds == {int} or kinds == {str}:
        return sorted(found) == sorted(wanted)
    try:
        wanted_keys = set(map(key_of, wanted))
        max_bytes = max(map(len, wanted_keys), default=0)
        return wanted_keys == {key_of(item, max_bytes) for item in found}
    except _Unkeyable:
        return False


def by_key(pairs: Iterable[tuple[Any, Any]], max_bytes: int | None = None) -> dict[Any, Any] | None:
    """Return the values by ``key_of`` their keys.

    None if a key is not hashable, is longer than ``max_bytes``, or occurs twice.
    """
    found: dict[Any, Any] = {}
    try:
        for key, value in pairs:
            name = key_of(key, max_bytes)
            if name in found:
                return None
            found[name] = value
    except _Unkeyable:
        return None
    return found


def longest_key(named: dict[Any, Any] | None) -> int:
    """Return the length of the longest key of a result of ``by_key``."""
    return max(map(len, named or ()), default=0)


def key_of(value: Any, max_bytes: float | None = None) -> str | bytes:
    """Return text or bytes that are equal exactly for equal keys. The time is linear in the bytes read.

    A Decimal or Fraction that equals no int or float has an encoding of its own. A nan equals no key, not
    even itself. Raises _Unkeyable for a value that is not hashable, and for a container or Decimal that needs
    more than ``max_bytes`` bytes.
    """
    kind = type(value)
    if kind is str:
        return value
    if kind is int or kind is bool:
        return b"#%x" % value
    if kind is tuple or kind is frozenset or kind is Inert:
        return _Joined(max_bytes).key(value)
    if kind is Decimal:
        return _decimal_key(value, max_bytes)
    name = _KEYS.get(kind)
    if name is None:
        raise _Unkeyable(f"unhashable: {kind.__name__}")
    return name(value)


class _Joined:
    """Encodes tuples and frozen sets as one byte string."""

    def __init__(self, max_bytes: float | None) -> None:
        self._bytes_left = math.inf if max_bytes is None else max_bytes

    def key(self, value: Any) -> bytes:
        """Encode the elements, each after its length. Those of a set are sorted."""
        if type(value) is tuple:
            tag, items = b"t", cast("Iterable[Any]", value)
        else:
            elements = elements_of(value)
            if elements is None:
                raise _Unkeyable("unhashable")
            tag, items = b"z", elements
        parts: list[bytes] = []
        for item in items:
            nested = type(item) is tuple or type(item) is frozenset or type(item) is Inert
            key = self.key(item) if nested else key_of(item, self._bytes_left)
            part = b"s" + key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
            part = b"%x:" % len(part) + part
            # The nested call has counted its own bytes, so only the prefix is added.
            self._bytes_left -= 4 if nested else len(part)
            if self._bytes_left < 0:
                raise _Unkeyable("longer than any key that is looked for")
            parts.append(part)
        if tag == b"z":
            parts = sorted(set(parts))
        return tag + b"".join(parts)


def _float_key(value: float) -> bytes:
    if value.is_integer():
        return b"#%x" % int(value)
    if math.isfinite(value):
        return b"." + pack("<d", value)
    # Each nan gets a key of its own, because a nan equals no other value.
    return b"?%x" % next(_serial) if math.isnan(value) else b"+" if value > 0 else b"-"


def _complex_key(value: complex) -> bytes:
    if value.imag == 0:
        return _float_key(value.real)
    return b"C" + _float_key(value.real) + b"," + _float_key(value.imag)


def _decimal_key(value: Decimal, max_bytes: float | None = None) -> bytes:
    """Encode a Decimal.

    The time is linear in its digits, or in ``max_bytes`` for an integer with a large exponent.
    """
    if not value.is_finite():
        return _float_key(float(str(value).replace("sNaN", "nan").rstrip("0123456789")))
    mantissa, _, exponent = format(value, "e").partition("e")
    digits = mantissa.lstrip("-").replace(".", "")
    whole = digits.rstrip("0")
    power = int(exponent) + 1 - len(whole)
    # A Decimal that equals a float must have the key of that float. One with more digits equals none.
    if len(whole) <= _FLOAT_DIGITS:
        near = float(value)
        if math.isfinite(near) and value == near:
            return _float_key(near)
    if 0 <= power <= len(digits):
        if max_bytes is not None and (len(whole) + power - 1) * _HEX_PER_DIGIT > max_bytes:
            raise _Unkeyable("longer than any key that is looked for")
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


def _datetime_key(value: datetime) -> bytes:
    """Encode a datetime. Two with time zones are equal if they are the same moment."""
    offset = value.utcoffset()
    if offset is None:
        return b"m" + value.replace(tzinfo=None).isoformat().encode()
    return b"M" + _timedelta_key(value.replace(tzinfo=None) - datetime.min - offset)


def _time_key(value: time) -> bytes:
    offset = value.utcoffset()
    if offset is None:
        return b"o" + value.replace(tzinfo=None).isoformat().encode()
    since = timedelta(0, value.second, value.microsecond, 0, value.minute, value.hour)
    return b"O" + _timedelta_key(since - offset)


def _timedelta_key(value: timedelta) -> bytes:
    return b"y%d %d %d" % (value.days, value.seconds, value.microseconds)


_KEYS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda v: b"N",
    type(...): lambda v: b"E",
    float: _float_key,
    complex: _complex_key,
    bytes: lambda v: b"b" + v,
    Fraction: _fraction_key,
    range: _range_key,
    date: lambda v: b"d" + v.isoformat().encode(),
    datetime: _datetime_key,
    time: _time_key,
    timedelta: _timedelta_key,
    timezone: lambda v: b"Z" + _timedelta_key(v.utcoffset(None)),
}


def _unbuilt(kind: str, per_item: int = 1) -> ItemReader:
    return lambda r, depth: Inert(kind, r.items(depth, per_item))


_UNBUILT = table(
    TAGS
    | dict.fromkeys((b"S", b"Z"), _unbuilt(SET))
    | dict.fromkeys((b"d", b"O", b"C"), _unbuilt(MAPPING, 2))
    | {b"E": _unbuilt(DEQUE)}
)


def show(value: object, width: int = 60) -> str:
    """Return a short text of a plain value, constructed or not. Never raises, and its time is bounded."""
    text = _show(value, width)
    return text if len(text) <= width else text[: width - 1] + "…"


def _show(value: object, width: int) -> str:
    if type(value) is int and value.bit_length() > 4000:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (str, bytes, bytearray)):
        return repr(value[: width + 1])
    if isinstance(value, (list, tuple, set, frozenset, deque, dict, Inert)):
        return _show_items(value, width)
    try:
        return repr(value)
    except ValueError:
        return f"a value of type {type(value).__name__}"


def _show_items(value: object, width: int) -> str:
    items: list[str] = []
    pairs = pairs_of(value)
    if pairs is None:
        content = value.items if isinstance(value, Inert) else cast("Iterable[object]", value)
    else:
        content = pairs
    for item in content:
        if sum(map(len, items)) > width:
            break
        if pairs is not None:
            key, entry = cast("tuple[object, object]", item)
            items.append(f"{_show(key, width)}: {_show(entry, width)}")
        else:
            items.append(_show(item, width))
    listed = isinstance(value, (list, deque)) or (isinstance(value, Inert) and value.kind == DEQUE)
    brackets = "()" if isinstance(value, tuple) else "[]" if listed else "{}"
    return brackets[0] + ", ".join(items) + brackets[1]

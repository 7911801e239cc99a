"""The encoding of plain values between processes, one of which may send hostile data.

Standard library only and self-contained: the same file runs inside the sandbox and outside.

The encoder reads an object through the methods of the exact builtin type (``list.__getitem__``, never
``obj[...]``). So a subclass with overridden methods is read as the base value that it contains. The decoder
(``value_reader``) treats its input as hostile. It creates exact builtin types, whose ``==`` and ``hash`` are
the builtin ones.

An ``Exporter`` (encoding) and an ``Importer`` (decoding) translate objects that are not plain, and named
tuples. Without them, named tuples are encoded as tuples.

Short text that occurs again is written once and then referenced by its number. Numbers of one type, and
references to text, are stored as arrays of the smallest item size. No value that can contain another one is
referenced, so decoding creates at most a small multiple of the bytes that it reads.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from whetstone.judge.set_order import in_canonical_order
from whetstone.judge.value_reader import (
    COMPLEX,
    EXACT_BITS,
    FLOAT,
    INT,
    LITTLE,
    MAX_DEPTH,
    MAX_PART_BITS,
    MAX_SHARED,
    MAX_SHARED_TEXT,
    SIZE,
    Importer,
    Reader,
    WireError,
)

# The limit of one message. The output of a sandbox has its own limits.
MAX_BYTES = 256 << 20

Exporter = Callable[[object], object]
"""Returns the plain value that is sent for an object that is not plain, or raises NotInert."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class NotInert(Exception):
    """The object has no plain form, or is too deep or too large."""


class TooLarge(NotInert):
    """The object has a plain form that exceeds the limit."""


def encode(value: object, exporter: Exporter | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode ``value``. Raises NotInert with a readable reason, and its subclass TooLarge."""
    writer = _Writer(exporter, max_bytes)
    writer.write(value, 0)
    writer.check_size()
    return bytes(writer.out)


def decode(data: bytes, importer: Importer | None = None, max_items: int | None = None) -> Any:
    """Decode one complete value. Raises WireError if the data is malformed.

    ``max_items`` limits the items of all containers together (None: a limit that depends on the length of
    ``data``).
    """
    reader = Reader(data, importer, max_items=max_items)
    value = reader.value()
    if reader.position != len(data):
        raise WireError("bytes after the value")
    return value


def decode_each(data: bytes) -> list[Any]:
    """Decode all values in ``data``. Raises WireError if the data is malformed."""
    reader = Reader(data)
    values: list[Any] = []
    while reader.position < len(data):
        values.append(reader.value())
    return values


class _Writer:
    def __init__(self, exporter: Exporter | None, max_bytes: int) -> None:
        self.out = bytearray()
        self.exporter = exporter
        self.max_bytes = max_bytes
        self.texts: dict[str, int] = {}

    def write(self, value: object, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise NotInert(f"nested deeper than {MAX_DEPTH} levels, or contains itself")
        kind = type(value)
        writer = _WRITERS.get(kind)
        if writer is not None:
            writer(self, value, depth)
            return
        if self.exporter is not None and (record_fields(kind) is not None or is_array(kind)):
            self.out += b"h"
            self.write(self.exporter(value), depth + 1)
            return
        plain, found = _base_value(value, kind)
        if found:
            self.write(plain, depth + 1)
            return
        if self.exporter is None:
            raise NotInert(f"a value of type {_type_name(kind)}, which has no plain form")
        self.out += b"h"
        self.write(self.exporter(value), depth + 1)

    def check_size(self) -> None:
        """Raise TooLarge if the output is too long.

        Called for each container, whose direct content is not much larger.
        """
        if len(self.out) > self.max_bytes:
            raise TooLarge(f"larger than {self.max_bytes >> 20} MiB")

    def write_sized(self, tag: bytes, data: bytes | bytearray | memoryview) -> None:
        if len(data) > self.max_bytes:
            raise TooLarge(f"larger than {self.max_bytes >> 20} MiB")
        self.out += tag + SIZE.pack(len(data))
        self.out += data

    def write_short(self, tag: bytes, data: bytes) -> None:
        self.out += tag
        self.out.append(len(data))
        self.out += data

    def items(self, tag: bytes, items: list[Any] | tuple[Any, ...], depth: int) -> None:
        self.check_size()
        self.out += tag + SIZE.pack(len(items))
        write, depth = self.write, depth + 1
        for item in items:
            write(item, depth)

    def write_packed(self, tag: bytes, items: list[Any] | tuple[Any, ...]) -> bool:
        """Write items of one type as an array if they are numbers, or references to texts.

        Returns whether it did.
        """
        kind = type(items[0])
        if kind is str:
            return self._packed_texts(tag, items)
        if (kind is not int and kind is not float) or set(map(type, items)) != {kind}:
            return False
        self.check_size()
        if kind is float:
            self._array(tag, array("d", items))
            return True
        with suppress(ValueError):
            self._write_array(tag + b"B", bytes(items))
            return True
        for code in "iq":
            with suppress(OverflowError):
                self._array(tag, array(code, items))
                return True
        return False

    def _packed_texts(self, tag: bytes, items: list[Any] | tuple[Any, ...]) -> bool:
        try:
            numbers = [self.texts[item] for item in items]
        except (KeyError, TypeError):
            return False
        self.check_size()
        if max(numbers) < 256:
            self._write_array(tag + b"t", bytes(numbers))
        else:
            self._array(tag, array("H", numbers))
        return True

    def _array(self, tag: bytes, packed: array[Any]) -> None:
        if not LITTLE:
            packed.byteswap()
        code = "T" if packed.typecode == "H" else packed.typecode
        self._write_array(tag + code.encode(), packed.tobytes())

    def _write_array(self, tag: bytes, data: bytes) -> None:
        if len(data) < 256:
            self.write_short(tag, data)
        else:
            self.write_sized(tag + b"\0", data)


def record_fields(kind: type) -> tuple[str, ...] | None:
    """Return the field names of a named tuple class; None for any other class. Runs no code of the class."""
    bases = type.__dict__["__mro__"].__get__(kind)
    if tuple not in bases:
        return None
    for base in bases:
        fields = type.__dict__["__dict__"].__get__(base).get("_fields")
        if type(fields) is tuple and all(type(name) is str for name in cast("tuple[object, ...]", fields)):
            return cast("tuple[str, ...]", fields)
    return None


def is_array(kind: type) -> bool:
    """Return whether a class is numpy's array, by its name, because this module must not import numpy."""
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray" and hasattr(kind, "tolist")


def _type_name(kind: type) -> str:
    name = type.__getattribute__(kind, "__name__")
    return name if type(name) is str else "?"


def _base_value(value: Any, kind: type) -> tuple[object, bool]:
    """Return the builtin value of a subclass instance, and whether there is one.

    Uses methods of the base only.
    """
    for base in type.__dict__["__mro__"].__get__(kind):
        if base in _BASE_READERS:
            return _BASE_READERS[base](value), True
    # numpy is recognised by its name, because this module must not import it.
    module = type.__getattribute__(kind, "__module__")
    if type(module) is str and (module == "numpy" or module.startswith("numpy.")):
        tolist = getattr(kind, "tolist", None)
        if tolist is not None:
            plain = tolist(value)
            if type(plain) is not kind:
                return plain, True
    return None, False


_ALL = slice(None)
_BASE_READERS: dict[type, Callable[[Any], object]] = {
    int: lambda v: int.__add__(v, 0),
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: lambda v: bytes.__getitem__(v, _ALL),
    bytearray: lambda v: bytearray(bytearray.__getitem__(v, _ALL)),
    list: lambda v: cast(object, list.__getitem__(v, _ALL)),
    tuple: lambda v: cast(object, tuple.__getitem__(v, _ALL)),
    dict: lambda v: cast(object, dict(list(dict.items(v)))),
    set: lambda v: cast(object, set(set.__iter__(v))),
    frozenset: lambda v: cast(object, frozenset(frozenset.__iter__(v))),
    deque: lambda v: cast(object, deque(deque.__iter__(v))),
    Decimal: lambda v: Decimal(Decimal.__str__(v)),
}


def _write_int(w: _Writer, value: Any, _depth: int) -> None:
    if 0 <= value < 256:
        w.out += b"j"
        w.out.append(value)
    elif _INT64_MIN <= value <= _INT64_MAX:
        w.out += b"i" + INT.pack(value)
    else:
        w.write_sized(b"I", int.to_bytes(value, value.bit_length() // 8 + 1, "little", signed=True))


def _write_text(w: _Writer, value: Any, _depth: int) -> None:
    number = w.texts.get(value)
    if number is None:
        try:
            data = value.encode()
        except UnicodeEncodeError:  # it holds surrogates
            w.write_sized(b"x", _code_points(value))
        else:
            if len(data) < 256:
                w.write_short(b"u", data)
            else:
                w.write_sized(b"s", data)
        if len(value) <= MAX_SHARED_TEXT and len(w.texts) < MAX_SHARED:
            w.texts[value] = len(w.texts)
    elif number < 256:
        w.out += b"v"
        w.out.append(number)
    else:
        w.out += b"w" + number.to_bytes(2, "little")


def _code_points(text: str) -> bytes:
    points = array("I", map(ord, text))
    if not LITTLE:
        points.byteswap()
    return points.tobytes()


def _write_list(w: _Writer, value: Any, depth: int) -> None:
    if len(value) < 2 or not w.write_packed(b"P", value):
        w.items(b"l", value, depth)


def _write_tuple(w: _Writer, value: Any, depth: int) -> None:
    if len(value) < 2 or not w.write_packed(b"p", value):
        w.items(b"t", value, depth)


def _write_dict(tag: bytes) -> Callable[[_Writer, Any, int], None]:
    def write(w: _Writer, value: Any, depth: int) -> None:
        w.check_size()
        w.out += tag + SIZE.pack(len(value))
        for key, item in list(dict.items(value)):
            w.write(key, depth + 1)
            w.write(item, depth + 1)

    return write


def _write_fraction(w: _Writer, value: Any, depth: int) -> None:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > EXACT_BITS:
        raise NotInert("a fraction with very large parts, which has no plain form")
    w.out += b"Q"
    w.write(value.numerator, depth + 1)
    w.write(value.denominator, depth + 1)


def _write_decimal(w: _Writer, value: Any, _depth: int) -> None:
    text = str(value).encode()
    if len(text) > EXACT_BITS // 3:
        raise NotInert("a decimal with very many digits, which has no plain form")
    w.write_sized(b"D", text)


def _write_parts(
    tag: bytes, read: Callable[[Any], tuple[object, ...]]
) -> Callable[[_Writer, Any, int], None]:
    def write(w: _Writer, value: Any, depth: int) -> None:
        w.out += tag
        w.write(read(value), depth + 1)

    return write


def _range_parts(v: range) -> tuple[object, ...]:
    parts = (v.start, v.stop, v.step)
    if max(part.bit_length() for part in parts) > MAX_PART_BITS:
        raise NotInert("a range of very large numbers, which has no plain form")
    return parts


def _constant(tag: bytes) -> Callable[[_Writer, Any, int], None]:
    def write(w: _Writer, _value: Any, _depth: int) -> None:
        w.out += tag

    return write


def _write_bool(w: _Writer, value: Any, _depth: int) -> None:
    w.out += b"T" if value else b"F"


def _refuse_time_zone(value: datetime | time) -> None:
    if value.tzinfo is not None:
        raise NotInert("a time with a time zone, which has no plain form")


def _datetime_parts(v: datetime) -> tuple[object, ...]:
    _refuse_time_zone(v)
    return (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond)


def _time_parts(v: time) -> tuple[object, ...]:
    _refuse_time_zone(v)
    return (v.hour, v.minute, v.second, v.microsecond)


_WRITERS: dict[type, Callable[[_Writer, Any, int], None]] = {
    type(None): _constant(b"N"),
    type(...): _constant(b"e"),
    bool: _write_bool,
    int: _write_int,
    float: lambda w, v, d: w.out.extend(b"f" + FLOAT.pack(v)),
    complex: lambda w, v, d: w.out.extend(b"c" + COMPLEX.pack(v.real, v.imag)),
    str: _write_text,
    bytes: lambda w, v, d: w.write_sized(b"b", v),
    bytearray: lambda w, v, d: w.write_sized(b"B", v),
    list: _write_list,
    tuple: _write_tuple,
    set: lambda w, v, d: w.items(b"S", in_canonical_order(list(v)), d),
    frozenset: lambda w, v, d: w.items(b"Z", in_canonical_order(list(v)), d),
    deque: lambda w, v, d: w.items(b"E", list(v), d),
    dict: _write_dict(b"d"),
    OrderedDict: _write_dict(b"O"),
    Counter: _write_dict(b"C"),
    Decimal: _write_decimal,
    Fraction: _write_fraction,
    range: _write_parts(b"R", _range_parts),
    date: _write_parts(b"1", lambda v: (v.year, v.month, v.day)),
    datetime: _write_parts(b"2", _datetime_parts),
    time: _write_parts(b"3", _time_parts),
    timedelta: _write_parts(b"4", lambda v: (v.days, v.seconds, v.microseconds)),
}

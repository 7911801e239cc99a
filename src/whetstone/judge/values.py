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
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

from whetstone.judge.plain_forms import (
    base_value,
    crosses_by_name,
    plain_view,
    timezone_parts,
    type_name,
    zone_parts,
)
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
    NAME_DEPTH,
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


class _NotPlain(NotInert):
    """This object itself has no plain form. It is sent by name where names are allowed."""


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
        self._named_depth = 0

    def write(self, value: object, depth: int) -> None:
        kind = type(value)
        writer = _WRITERS.get(kind)
        if depth > MAX_DEPTH:
            self._check_depth(depth)
            # A container this deep is sent by name.
            if not self._named_depth and (writer is None or kind in _CONTAINERS):
                self.write_name(value, depth)
                return
        if writer is not None:
            try:
                writer(self, value, depth)
            except _NotPlain:
                if self.exporter is None:
                    raise
                self.write_name(value, depth)
            return
        if self.exporter is not None and crosses_by_name(kind):
            self.write_name(value, depth)
            return
        plain, found = base_value(value, kind)
        if not found and self.exporter is None:
            plain, found = plain_view(value, kind)
        if found:
            self.write(plain, depth + 1)
        elif self.exporter is None:
            raise NotInert(f"a value of type {type_name(kind)}, which has no plain form")
        else:
            self.write_name(value, depth)

    def write_name(self, value: object, depth: int) -> None:
        """Write what the exporter returns for an object."""
        assert self.exporter is not None
        self.out += b"h"
        deep = depth > MAX_DEPTH
        self._named_depth += deep
        self.write(self.exporter(value), depth + 1)
        self._named_depth -= deep

    def _check_depth(self, depth: int) -> None:
        if self.exporter is None or depth > MAX_DEPTH + NAME_DEPTH:
            raise NotInert(f"nested deeper than {MAX_DEPTH} levels, or contains itself")

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
        raise _NotPlain("a fraction with very large parts, which has no plain form")
    w.out += b"Q"
    w.write(value.numerator, depth + 1)
    w.write(value.denominator, depth + 1)


def _write_decimal(w: _Writer, value: Any, _depth: int) -> None:
    text = str(value).encode()
    if len(text) > EXACT_BITS // 3:
        raise _NotPlain("a decimal with very many digits, which has no plain form")
    w.write_sized(b"D", text)


def _write_parts(
    tag: bytes, read: Callable[[Any], tuple[object, ...]]
) -> Callable[[_Writer, Any, int], None]:
    def write(w: _Writer, value: Any, depth: int) -> None:
        parts = read(value)
        w.out += tag
        w.write(parts, depth + 1)

    return write


def _range_parts(v: range) -> tuple[object, ...]:
    parts = (v.start, v.stop, v.step)
    if max(part.bit_length() for part in parts) > MAX_PART_BITS:
        raise _NotPlain("a range of very large numbers, which has no plain form")
    return parts


def _constant(tag: bytes) -> Callable[[_Writer, Any, int], None]:
    def write(w: _Writer, _value: Any, _depth: int) -> None:
        w.out += tag

    return write


def _write_bool(w: _Writer, value: Any, _depth: int) -> None:
    w.out += b"T" if value else b"F"


def _write_datetime(w: _Writer, value: Any, depth: int) -> None:
    parts = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    _write_time_parts(w, b"25", value, parts, depth)


def _write_time(w: _Writer, value: Any, depth: int) -> None:
    _write_time_parts(w, b"36", value, (value.hour, value.minute, value.second, value.microsecond), depth)


def _write_time_parts(w: _Writer, tags: bytes, value: Any, parts: tuple[object, ...], depth: int) -> None:
    zone = None
    if value.tzinfo is not None:
        try:
            zone = zone_parts(value)
        # A zone is code. Only the exceptions of a sandbox must pass.
        except Exception as error:
            raise _NotPlain(f"a time zone that raises {type(error).__name__}") from None
    w.out += tags[:1] if zone is None else tags[1:]
    w.write(parts if zone is None else (*parts, value.fold, *zone), depth + 1)


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
    datetime: _write_datetime,
    time: _write_time,
    timezone: _write_parts(b"7", timezone_parts),
    timedelta: _write_parts(b"4", lambda v: (v.days, v.seconds, v.microseconds)),
}
_CONTAINERS = frozenset({list, tuple, set, frozenset, deque, dict, OrderedDict, Counter})

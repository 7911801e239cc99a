"""Inert values on a wire: how plain data leaves a process that may lie, and how it is compared.

Standard library only and self-contained: the same file runs inside the locked child and outside.

The encoder reads an object through the methods of the exact builtin type (``list.__getitem__``,
never ``obj[...]``), so that a subclass with overridden methods is read as the base value it holds.
The decoder treats its input as hostile: every length is checked, depth and element count are
bounded, and what it builds are exact builtin types, whose ``==`` and ``hash`` are the builtin ones.
An ``Exporter`` (encoding) and an ``Importer`` (decoding) may stand in for what is not inert, and for named
tuples, which without them are tuples.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any, cast

MAX_DEPTH = 100
MAX_BYTES = 64 << 20
MAX_NODES = 8_000_000
_NODES_OF_LARGE = 12

Exporter = Callable[[object], object]
"""Names an object that is not inert: returns the inert value that stands for it, or raises NotInert."""
Importer = Callable[[object], object]
"""The reverse: gets the inert value that stood for an object. Raises WireError on nonsense."""

_SIZE = Layout("<Q")
_FLOAT = Layout("<d")
_INT = Layout("<q")
_COMPLEX = Layout("<dd")
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
# Reducing a fraction takes quadratic time in its digits: beyond this, it is refused on both sides.
_EXACT_BITS = 30_000
_LITTLE = sys.byteorder == "little"


class NotInert(Exception):
    """The object has no plain form, or is too deep or too large."""


class WireError(Exception):
    """The bytes are not an encoding."""


def encode(value: object, exporter: Exporter | None = None, max_bytes: int = MAX_BYTES) -> bytes:
    """Encode ``value``. Raises NotInert, with a reason a person can read."""
    writer = _Writer(exporter, max_bytes)
    writer.write(value, 0)
    return bytes(writer.out)


def decode(data: bytes, importer: Importer | None = None) -> Any:
    """Decode one whole value. Raises WireError on anything else than an encoding."""
    reader = _Reader(data, importer)
    value = reader.read(0)
    if reader.position != len(data):
        raise WireError("bytes after the value")
    return value


def decode_each(data: bytes) -> list[Any]:
    """Decode values that stand one after the other. Raises WireError on anything else."""
    reader = _Reader(data, None)
    values: list[Any] = []
    while reader.position < len(data):
        values.append(reader.read(0))
    return values


class _Writer:
    def __init__(self, exporter: Exporter | None, max_bytes: int) -> None:
        self.out = bytearray()
        self.exporter = exporter
        self.max_bytes = max_bytes

    def write(self, value: object, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise NotInert(f"nested deeper than {MAX_DEPTH} levels, or contains itself")
        if len(self.out) > self.max_bytes:
            raise NotInert(f"larger than {self.max_bytes >> 20} MiB")
        kind = type(value)
        writer = _WRITERS.get(kind)
        if writer is not None:
            writer(self, value, depth)
            return
        if self.exporter is not None and record_fields(kind) is not None:
            self.out += b"h"
            self.write(self.exporter(value), depth + 1)
            return
        plain, found = _reduce(value, kind)
        if found:
            self.write(plain, depth + 1)
            return
        if self.exporter is None:
            raise NotInert(f"a value of type {_type_name(kind)}, which has no plain form")
        self.out += b"h"
        self.write(self.exporter(value), depth + 1)

    def sized(self, tag: bytes, data: bytes | bytearray | memoryview) -> None:
        if len(data) > self.max_bytes:
            raise NotInert(f"larger than {self.max_bytes >> 20} MiB")
        self.out += tag + _SIZE.pack(len(data))
        self.out += data

    def items(self, tag: bytes, items: list[Any] | tuple[Any, ...], depth: int) -> None:
        self.out += tag + _SIZE.pack(len(items))
        for item in items:
            self.write(item, depth + 1)


def record_fields(kind: type) -> tuple[str, ...] | None:
    """The field names of a named tuple class; None for any other class. Runs no code of the class."""
    bases = type.__dict__["__mro__"].__get__(kind)
    if tuple not in bases:
        return None
    for base in bases:
        fields = type.__dict__["__dict__"].__get__(base).get("_fields")
        if type(fields) is tuple and all(type(name) is str for name in cast("tuple[object, ...]", fields)):
            return cast("tuple[str, ...]", fields)
    return None


def _type_name(kind: type) -> str:
    name = type.__getattribute__(kind, "__name__")
    return name if type(name) is str else "?"


def _reduce(value: Any, kind: type) -> tuple[object, bool]:
    """The builtin value a subclass instance holds, read through the base's own methods."""
    for base in type.__dict__["__mro__"].__get__(kind):
        if base in _REDUCERS:
            return _REDUCERS[base](value), True
    # numpy is recognised by its name, so that nothing here imports it.
    module = type.__getattribute__(kind, "__module__")
    if type(module) is str and (module == "numpy" or module.startswith("numpy.")):
        tolist = getattr(kind, "tolist", None)
        if tolist is not None:
            plain = tolist(value)
            if type(plain) is not kind:
                return plain, True
    return None, False


_ALL = slice(None)
_REDUCERS: dict[type, Callable[[Any], object]] = {
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
    if _INT64_MIN <= value <= _INT64_MAX:
        w.out += b"i" + _INT.pack(value)
    else:
        w.sized(b"I", int.to_bytes(value, value.bit_length() // 8 + 1, "little", signed=True))


def _write_list(w: _Writer, value: Any, depth: int) -> None:
    # Long lists of one number type cross as an array: a hundred times faster than item by item.
    if len(value) > 16:
        kinds = set(map(type, value))
        code = "q" if kinds == {int} else "d" if kinds == {float} else ""
        if code:
            try:
                packed = array(code, value)
            except OverflowError:
                pass
            else:
                if not _LITTLE:
                    packed.byteswap()
                w.sized(b"A" if code == "q" else b"G", packed.tobytes())
                return
    w.items(b"l", value, depth)


def _write_dict(tag: bytes) -> Callable[[_Writer, Any, int], None]:
    def write(w: _Writer, value: Any, depth: int) -> None:
        w.out += tag + _SIZE.pack(len(value))
        for key, item in list(dict.items(value)):
            w.write(key, depth + 1)
            w.write(item, depth + 1)

    return write


def _write_fraction(w: _Writer, value: Any, depth: int) -> None:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _EXACT_BITS:
        raise NotInert("a fraction with very large parts, which has no plain form")
    w.out += b"Q"
    w.write(value.numerator, depth + 1)
    w.write(value.denominator, depth + 1)


def _write_decimal(w: _Writer, value: Any, _depth: int) -> None:
    text = str(value).encode()
    if len(text) > _EXACT_BITS // 3:
        raise NotInert("a decimal with very many digits, which has no plain form")
    w.sized(b"D", text)


def _parts(tag: bytes, read: Callable[[Any], tuple[object, ...]]) -> Callable[[_Writer, Any, int], None]:
    def write(w: _Writer, value: Any, depth: int) -> None:
        w.out += tag
        w.write(read(value), depth + 1)

    return write


def _constant(tag: bytes) -> Callable[[_Writer, Any, int], None]:
    def write(w: _Writer, _value: Any, _depth: int) -> None:
        w.out += tag

    return write


def _write_bool(w: _Writer, value: Any, _depth: int) -> None:
    w.out += b"T" if value else b"F"


def _naive(value: datetime | time) -> None:
    if value.tzinfo is not None:
        raise NotInert("a time with a time zone, which has no plain form")


def _datetime_parts(v: datetime) -> tuple[object, ...]:
    _naive(v)
    return (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond)


def _time_parts(v: time) -> tuple[object, ...]:
    _naive(v)
    return (v.hour, v.minute, v.second, v.microsecond)


_WRITERS: dict[type, Callable[[_Writer, Any, int], None]] = {
    type(None): _constant(b"N"),
    type(...): _constant(b"e"),
    bool: _write_bool,
    int: _write_int,
    float: lambda w, v, d: w.out.extend(b"f" + _FLOAT.pack(v)),
    complex: lambda w, v, d: w.out.extend(b"c" + _COMPLEX.pack(v.real, v.imag)),
    str: lambda w, v, d: w.sized(b"s", v.encode("utf-8", "surrogatepass")),
    bytes: lambda w, v, d: w.sized(b"b", v),
    bytearray: lambda w, v, d: w.sized(b"B", v),
    list: _write_list,
    tuple: lambda w, v, d: w.items(b"t", v, d),
    set: lambda w, v, d: w.items(b"S", list(v), d),
    frozenset: lambda w, v, d: w.items(b"Z", list(v), d),
    deque: lambda w, v, d: w.items(b"E", list(v), d),
    dict: _write_dict(b"d"),
    OrderedDict: _write_dict(b"O"),
    Counter: _write_dict(b"C"),
    Decimal: _write_decimal,
    Fraction: _write_fraction,
    range: _parts(b"R", lambda v: (v.start, v.stop, v.step)),
    date: _parts(b"1", lambda v: (v.year, v.month, v.day)),
    datetime: _parts(b"2", _datetime_parts),
    time: _parts(b"3", _time_parts),
    timedelta: _parts(b"4", lambda v: (v.days, v.seconds, v.microseconds)),
}


class _Reader:
    def __init__(self, data: bytes, importer: Importer | None) -> None:
        self.data = data
        self.importer = importer
        self.position = 0
        self.nodes = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise WireError("cut short")
        part = self.data[self.position : end]
        self.position = end
        return part

    def size(self) -> int:
        return _SIZE.unpack(self.take(8))[0]

    def sized(self) -> bytes:
        return self.take(self.size())

    def items(self, depth: int, per_item: int = 1) -> list[Any]:
        count = self.size() * per_item
        # Every item takes at least one byte: a count beyond that is a lie, found before any work.
        if count > len(self.data) - self.position:
            raise WireError("cut short")
        self.nodes += count
        if self.nodes > MAX_NODES:
            raise WireError("too many elements")
        return [self.read(depth + 1) for _ in range(count)]

    def read(self, depth: int) -> Any:
        if depth > MAX_DEPTH + 4:
            raise WireError("nested too deep")
        reader = _READERS.get(self.take(1))
        if reader is None:
            raise WireError("unknown tag")
        try:
            return reader(self, depth)
        except (
            ValueError,
            TypeError,
            OverflowError,
            ArithmeticError,
            InvalidOperation,
            LayoutError,
        ) as error:
            raise WireError(f"malformed: {type(error).__name__}") from None


def _read_array(code: str) -> Callable[[_Reader, int], Any]:
    def read(r: _Reader, _depth: int) -> Any:
        data = r.sized()
        r.nodes += len(data) // 8
        if r.nodes > MAX_NODES:
            raise WireError("too many elements")
        packed = array(code)
        packed.frombytes(data)
        if not _LITTLE:
            packed.byteswap()
        return packed.tolist()

    return read


def _hashable(keys: list[Any]) -> list[Any]:
    """``keys``, unless they were chosen to collide: a set of those would take quadratic time."""
    alike = Counter(map(hash, keys)).values()
    if sum(n * (n - 1) for n in alike) > 100 * len(keys) + 10_000:
        raise WireError("keys with equal hashes")
    return keys


def _large(r: _Reader) -> _Reader:
    """Count an object that even empty takes as much memory as many others."""
    r.nodes += _NODES_OF_LARGE
    return r


def _read_pairs(make: Callable[[], dict[Any, Any]]) -> Callable[[_Reader, int], Any]:
    def read(r: _Reader, depth: int) -> Any:
        flat = (r if make is dict else _large(r)).items(depth, 2)
        result = make()
        for key, value in zip(_hashable(flat[::2]), flat[1::2], strict=True):
            result[key] = value
        return result

    return read


def _read_fraction(r: _Reader, depth: int) -> Any:
    numerator, denominator = r.read(depth + 1), r.read(depth + 1)
    if type(numerator) is not int or type(denominator) is not int:
        raise WireError("malformed fraction")
    if max(numerator.bit_length(), denominator.bit_length()) > _EXACT_BITS:
        raise WireError("a fraction with very large parts")
    return Fraction(numerator, denominator)


def _read_decimal(r: _Reader, _depth: int) -> Any:
    text = r.sized()
    if len(text) > _EXACT_BITS // 3:
        raise WireError("a decimal with very many digits")
    return Decimal(text.decode("ascii"))


def _read_ints(make: Callable[..., Any]) -> Callable[[_Reader, int], Any]:
    def read(r: _Reader, depth: int) -> Any:
        parts = r.read(depth + 1)
        if type(parts) is not tuple or any(type(p) is not int for p in cast("tuple[object, ...]", parts)):
            raise WireError("malformed parts")
        return make(*parts)

    return read


def _read_handle(r: _Reader, depth: int) -> Any:
    name = r.read(depth + 1)
    if r.importer is None:
        raise WireError("a handle where only plain values may be")
    return r.importer(name)


def _read_bigint(r: _Reader, _depth: int) -> Any:
    return int.from_bytes(r.sized(), "little", signed=True)


_READERS: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"N": lambda r, d: None,
    b"e": lambda r, d: ...,
    b"T": lambda r, d: True,
    b"F": lambda r, d: False,
    b"i": lambda r, d: _INT.unpack(r.take(8))[0],
    b"I": _read_bigint,
    b"f": lambda r, d: _FLOAT.unpack(r.take(8))[0],
    b"c": lambda r, d: complex(*_COMPLEX.unpack(r.take(16))),
    b"s": lambda r, d: r.sized().decode("utf-8", "surrogatepass"),
    b"b": lambda r, d: r.sized(),
    b"B": lambda r, d: bytearray(r.sized()),
    b"l": lambda r, d: r.items(d),
    b"t": lambda r, d: tuple(r.items(d)),
    b"S": lambda r, d: set(_hashable(r.items(d))),
    b"Z": lambda r, d: frozenset(_hashable(r.items(d))),
    b"E": lambda r, d: deque(_large(r).items(d)),
    b"d": _read_pairs(dict),
    b"O": _read_pairs(OrderedDict),
    b"C": _read_pairs(Counter),
    b"D": _read_decimal,
    b"Q": _read_fraction,
    b"R": _read_ints(range),
    b"A": _read_array("q"),
    b"G": _read_array("d"),
    b"h": _read_handle,
    b"1": _read_ints(date),
    b"2": _read_ints(datetime),
    b"3": _read_ints(time),
    b"4": _read_ints(timedelta),
}

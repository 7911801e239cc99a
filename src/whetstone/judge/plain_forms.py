"""The plain forms of objects whose class is not a builtin type: subclasses, views, numbers, time zones.

Standard library only and self-contained: the same file runs inside the sandbox and outside. An object is read
through the methods of the builtin type that it is derived from, and a library is recognised by its name.

The zone of a time becomes its offset at that time, and its name. So a time from a hostile process has no code
of its own. A process that accepts objects also gets the key of a zone: later arithmetic then uses its rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

_MAX_ZONE_NAME = 100
_MAX_OFFSET_DAYS = 1


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


def crosses_by_name(kind: type) -> bool:
    """Return whether an exporter handles a class whose objects also have a plain form, with less in it."""
    if record_fields(kind) is not None or is_array(kind):
        return True
    module = type.__getattribute__(kind, "__module__")
    if type(module) is not str:
        return False
    return module.partition(".")[0] == "pandas" or (module, type_name(kind)) in _NAMED


def is_array(kind: type) -> bool:
    """Return whether a class is numpy's array, by its name, because this module must not import numpy."""
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray" and hasattr(kind, "tolist")


def type_name(kind: type) -> str:
    """Return the name of a class; ``?`` for one that has none."""
    name = type.__getattribute__(kind, "__name__")
    return name if type(name) is str else "?"


def base_value(value: Any, kind: type) -> tuple[object, bool]:
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


_NAMED = frozenset({("time", "struct_time"), ("numpy", "datetime64"), ("numpy", "timedelta64")})
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


def plain_view(value: Any, kind: type) -> tuple[object, bool]:
    """Return the builtin value that an object of a library equals, and whether there is one.

    Only for objects that are compared at once. In further use, the plain value lacks their methods.
    """
    module = type.__getattribute__(kind, "__module__")
    reader = _VIEWS.get((module, type_name(kind))) if type(module) is str else None
    bases = type.__dict__["__mro__"].__get__(kind)
    reader = reader or next((_VIEW_BASES[base] for base in bases if base in _VIEW_BASES), None)
    try:
        return (None, False) if reader is None else (reader(value), True)
    # An element that cannot be hashed, or a forged class.
    except (TypeError, ValueError, AttributeError):
        return None, False


def _memory(value: memoryview) -> bytes:
    if value.format != "B" or value.ndim != 1:
        raise ValueError
    return value.tobytes()


_VIEW_BASES: dict[type, Callable[[Any], object]] = {
    Fraction: lambda v: Fraction(v.numerator, v.denominator),
    datetime: lambda v: datetime.combine(datetime.date(v), datetime.timetz(v)),
    date: lambda v: date(v.year, v.month, v.day),
    time: lambda v: time.replace(v, fold=v.fold),
    timedelta: lambda v: timedelta(v.days, v.seconds, v.microseconds),
}
_VIEWS: dict[tuple[str, str], Callable[[Any], object]] = {
    ("collections", "UserDict"): lambda v: dict(v.data),
    ("collections", "UserList"): lambda v: list(v.data),
    ("collections", "UserString"): lambda v: str.__str__(v.data),
    ("collections", "ChainMap"): dict,
    ("builtins", "mappingproxy"): dict,
    ("builtins", "dict_keys"): set,
    ("builtins", "dict_items"): set,
    ("builtins", "memoryview"): _memory,
    ("sympy.core.numbers", "Integer"): int,
    ("sympy.core.numbers", "Zero"): int,
    ("sympy.core.numbers", "One"): int,
    ("sympy.core.numbers", "NegativeOne"): int,
    ("sympy.core.numbers", "Float"): float,
    ("sympy.core.numbers", "Rational"): lambda v: Fraction(int(v.p), int(v.q)),
    ("sympy.core.numbers", "Half"): lambda v: Fraction(1, 2),
}


def zone_key(zone: tzinfo | None) -> str | None:
    """Return the key of a ZoneInfo; None for any other zone."""
    kind = type(zone)
    key = getattr(zone, "key", None) if (kind.__module__, kind.__name__) == ("zoneinfo", "ZoneInfo") else None
    return key if type(key) is str else None


def zone_parts(value: datetime | time) -> tuple[object, ...] | None:
    """Return offset, name and key of the time zone of ``value``; None if it has none at that time.

    Runs code of the zone, and raises whatever that raises.
    """
    offset = value.utcoffset() if value.tzinfo is not None else None
    if offset is None:
        return None
    name = value.tzname()
    name = str.__str__(name)[:_MAX_ZONE_NAME] if isinstance(name, str) else None
    return (offset.days, offset.seconds, offset.microseconds, name, zone_key(value.tzinfo))


def timezone_parts(value: timezone) -> tuple[object, ...]:
    """Return offset and name of a fixed offset."""
    offset = value.utcoffset(None)
    return (offset.days, offset.seconds, offset.microseconds, value.tzname(None)[:_MAX_ZONE_NAME])


def read_timezone(parts: tuple[Any, ...]) -> timezone:
    """Return the fixed offset with these parts. Raises ValueError if they are malformed."""
    match parts:
        case (int() as days, int() as seconds, int() as microseconds, (str() | None) as name) if (
            abs(days) <= _MAX_OFFSET_DAYS and 0 <= seconds < 86_400 and 0 <= microseconds < 1_000_000
        ):
            offset = timedelta(days, seconds, microseconds)
            plain = timezone(offset)
            # The name of an unnamed one is computed, and a given name would change its repr.
            return (
                plain
                if name is None or name == plain.tzname(None)
                else timezone(offset, name[:_MAX_ZONE_NAME])
            )
        case _:
            raise ValueError("malformed time zone")

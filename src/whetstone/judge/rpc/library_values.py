"""Immutable values of the standard library, numpy and pandas that cross by value in both directions.

``["value", tag, parts]`` describes one. The tag selects a reader from a closed list, and each reader checks
the parts. Both processes use this module. A value of a library that the receiver has not loaded is
unavailable there. The test process then gets a handle of the object.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, cast

from whetstone.judge.plain_forms import zone_key
from whetstone.judge.value_reader import WireError

_NUMPY_UNITS = frozenset({"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic"})
_PANDAS_UNITS = frozenset({"s", "ms", "us", "ns"})
_ADDRESSES = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
_ARRAY_CODES = "bBhHiIlLqQfd"
_MAX_TEXT = 200


class Unavailable(Exception):
    """The receiver has not loaded the library of the value."""


def describe_value(value: Any) -> list[Any] | None:
    """Return the message form of a value; None for any other object. Imports no module."""
    kind = type(value)
    if kind is slice:
        return ["slice", value.start, value.stop, value.step]
    if zone_key(value) is not None:
        return ["zone", value.key]
    module, name = kind.__module__, kind.__name__
    if type(module) is str and module.partition(".")[0] == "pandas":
        describer = _PANDAS_DESCRIBERS.get(name)
    else:
        describer = _DESCRIBERS.get((module, name))
    return None if describer is None else ["value", *describer(value)]


def read_value(tag: str, parts: list[Any]) -> object:
    """Return the described value. Raises WireError if it is malformed, and Unavailable."""
    reader = _READERS.get(tag)
    if reader is None:
        raise WireError("an unknown kind of value")
    try:
        return reader(*parts)
    except (Unavailable, WireError, RecursionError):
        raise
    # An older version of the library.
    except AttributeError:
        raise Unavailable(tag) from None
    except (ValueError, TypeError, LookupError, ArithmeticError, InvalidOperation) as error:
        raise WireError(f"a malformed value: {type(error).__name__}") from None


def read_zone(key: str) -> object:
    """Return the time zone with this key; None for an unknown one."""
    import zoneinfo  # only where one crosses

    # Closed list: the key must not name any other file.
    return zoneinfo.ZoneInfo(key) if key in zoneinfo.available_timezones() else None


def _check(condition: bool) -> None:
    if not condition:
        raise WireError("a malformed value")


def _library(name: str) -> Any:
    found = sys.modules.get(name)
    if found is None:
        raise Unavailable(name)
    return found


def _read_uuid(data: Any) -> object:
    import uuid  # only where one crosses

    _check(type(data) is bytes and len(data) == 16)
    return uuid.UUID(bytes=data)


def _read_address(name: Any, text: Any) -> object:
    import ipaddress  # only where one crosses

    _check(name in _ADDRESSES and type(text) is str and len(text) <= _MAX_TEXT)
    return getattr(ipaddress, name)(text)


def _read_mapping(items: Any) -> object:
    import types  # only where one crosses

    _check(type(items) is dict)
    return types.MappingProxyType(cast("dict[Any, Any]", items))


def _read_keys(keys: Any) -> object:
    _check(type(keys) is list)
    return dict.fromkeys(cast("list[Any]", keys)).keys()


def _read_items(pairs: Any) -> object:
    _check(type(pairs) is dict)
    return cast("dict[Any, Any]", pairs).items()


def _read_memory(data: Any) -> object:
    _check(type(data) is bytes)
    return memoryview(data)


def _read_struct_time(parts: Any) -> object:
    import time  # only where one crosses

    _check(type(parts) is tuple and len(parts) in (9, 11))
    return time.struct_time(cast("tuple[Any, ...]", parts))


def _read_array(code: Any, data: Any) -> object:
    import array  # only where one crosses

    _check(type(code) is str and len(code) == 1 and code in _ARRAY_CODES and type(data) is bytes)
    return array.array(code, data)


def _read_numpy_time(name: Any, unit: Any, count: Any, number: Any) -> object:
    numpy = _library("numpy")
    _check(name in ("datetime64", "timedelta64") and unit in _NUMPY_UNITS)
    _check(type(count) is int and 0 < count < 1 << 31 and type(number) is int)
    return getattr(numpy, name)(number) if unit == "generic" else getattr(numpy, name)(number, (unit, count))


def _describe_numpy_time(value: Any) -> tuple[Any, ...]:
    numpy = sys.modules["numpy"]
    unit, count = numpy.datetime_data(value.dtype)
    return "numpy_time", [type(value).__name__, unit, count, int(value.view("i8"))]


def _read_timestamp(number: Any, unit: Any, zone: Any) -> object:
    pandas = _library("pandas")
    _check(type(number) is int and unit in _PANDAS_UNITS)
    found = pandas.Timestamp(number, unit=unit).as_unit(unit)
    return found if zone is None else found.tz_localize("UTC").tz_convert(zone)


def _describe_timestamp(value: Any) -> tuple[Any, ...]:
    # The zone crosses as that of a plain time, and arrives as a zone.
    return "timestamp", [int(value.asm8.view("i8")), value.unit, value.tzinfo]


def _read_timedelta(number: Any, unit: Any) -> object:
    pandas = _library("pandas")
    _check(type(number) is int and unit in _PANDAS_UNITS)
    return pandas.Timedelta(number, unit=unit).as_unit(unit)


def _read_period(ordinal: Any, frequency: Any) -> object:
    pandas = _library("pandas")
    _check(type(ordinal) is int and type(frequency) is str and len(frequency) <= _MAX_TEXT)
    return pandas.Period(ordinal=ordinal, freq=frequency)


def _read_fraction(numerator: Any, denominator: Any) -> object:
    _check(type(numerator) is int and type(denominator) is int)
    return Fraction(numerator, denominator)


def _read_decimal(text: Any) -> object:
    _check(type(text) is str)
    return Decimal(text)


_Describer = Callable[[Any], tuple[Any, ...]]
# By module and name of the class, because this module must not import libraries.
_DESCRIBERS: dict[tuple[str, str], _Describer] = {
    ("uuid", "UUID"): lambda v: ("uuid", [v.bytes]),
    **{("ipaddress", name): lambda v: ("address", [type(v).__name__, str(v)]) for name in _ADDRESSES},
    ("builtins", "mappingproxy"): lambda v: ("mapping", [dict(v)]),
    ("builtins", "dict_keys"): lambda v: ("keys", [list(v)]),
    ("builtins", "dict_items"): lambda v: ("items", [dict(v)]),
    ("time", "struct_time"): lambda v: ("struct_time", [(*tuple.__iter__(v), v.tm_zone, v.tm_gmtoff)]),
    ("array", "array"): lambda v: ("array", [v.typecode, v.tobytes()]),
    ("builtins", "memoryview"): lambda v: ("memory", [v.tobytes()]),
    ("numpy", "datetime64"): _describe_numpy_time,
    ("numpy", "timedelta64"): _describe_numpy_time,
    # Those with more digits than a plain value may have.
    ("fractions", "Fraction"): lambda v: ("fraction", [v.numerator, v.denominator]),
    ("decimal", "Decimal"): lambda v: ("decimal", [str(v)]),
    ("builtins", "range"): lambda v: ("range", [v.start, v.stop, v.step]),
}
# By name alone, because pandas has changed the modules of its classes.
_PANDAS_DESCRIBERS: dict[str, _Describer] = {
    "Timestamp": _describe_timestamp,
    "Timedelta": lambda v: ("timedelta", [int(v.asm8.view("i8")), v.unit]),
    "Period": lambda v: ("period", [v.ordinal, v.freqstr]),
    "NaTType": lambda v: ("nat", []),
    "NAType": lambda v: ("na", []),
}
_READERS: dict[str, Callable[..., object]] = {
    "uuid": _read_uuid,
    "address": _read_address,
    "mapping": _read_mapping,
    "keys": _read_keys,
    "items": _read_items,
    "struct_time": _read_struct_time,
    "array": _read_array,
    "memory": _read_memory,
    "numpy_time": _read_numpy_time,
    "timestamp": _read_timestamp,
    "timedelta": _read_timedelta,
    "period": _read_period,
    "nat": lambda: _library("pandas").NaT,
    "na": lambda: _library("pandas").NA,
    "fraction": _read_fraction,
    "decimal": _read_decimal,
    "range": range,
}

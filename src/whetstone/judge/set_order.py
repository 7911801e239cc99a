"""The order in which the elements of a set are written: nothing of it says how this process hashes.

A process draws at random how it hashes text, and hashes objects by their addresses. Where a set goes to a
program that has itself put elements into it, the order in which they stood here would tell it of both. So
they go in an order of their own. Numbers hash alike everywhere, and stay as they stand: an honest program may
count on the order in which Python keeps small ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from whetstone.judge.value_reader import MAX_DEPTH

_NUMBERS = frozenset({int, bool, float, complex, Decimal, Fraction})
_COMPARABLE = frozenset({str, bytes, int, bool})
_WRITTEN: dict[type, Callable[[Any], object]] = {
    type(None): bool,
    type(...): bool,
    str: lambda v: v,
    bytes: lambda v: v,
    int: lambda v: v,
    bool: lambda v: v,
    float: repr,
    complex: repr,
    Decimal: str,
    Fraction: lambda v: (v.numerator, v.denominator),
    range: lambda v: (v.start, v.stop, v.step),
    date: str,
    datetime: lambda v: str(v.replace(tzinfo=None)),
    time: lambda v: str(v.replace(tzinfo=None)),
    timedelta: lambda v: (v.days, v.seconds, v.microseconds),
}


def in_one_order(elements: list[Any]) -> list[Any]:
    """The elements of a set, given as they stand in it, in the order in which they are to be written.

    Of objects that have no plain form the one that lies first comes first, which is mostly the older.
    Where hashing is not drawn at random, as in a program's process, they stay as they stand.
    """
    if len(elements) < 2 or not sys.flags.hash_randomization:
        return elements
    kinds: set[type[Any]] = set(map(type, elements))
    if kinds == {str}:
        return sorted(elements)
    if kinds <= _NUMBERS or all(_is_number(each, 0) for each in elements):
        return elements
    if all(_is_comparable(each, 0) for each in elements):
        try:
            return sorted(elements)
        except TypeError:
            pass  # of several types
    return sorted(elements, key=_key)


def _is_number(value: Any, depth: int) -> bool:
    """Whether it is a number, or holds nothing else."""
    if type(value) is tuple or type(value) is frozenset:
        inside = cast("tuple[Any, ...] | frozenset[Any]", value)
        return depth < MAX_DEPTH and all(_is_number(each, depth + 1) for each in inside)
    return type(value) in _NUMBERS


def _is_comparable(value: Any, depth: int) -> bool:
    """Whether ``<`` puts it and others of its type in one order; not so sets, and numbers that are none."""
    if type(value) is tuple:
        inside = cast("tuple[Any, ...]", value)
        return depth < MAX_DEPTH and all(_is_comparable(each, depth + 1) for each in inside)
    return type(value) in _COMPARABLE or (type(value) is float and value == value)


def _key(value: Any, depth: int = 0) -> tuple[Any, ...]:
    """What puts plain values of any types in one order: the name of the type, then what it holds."""
    kind = type(value)
    if depth == MAX_DEPTH:  # deeper than a message may be: it is not written, in whatever order
        return (kind.__name__,)
    if kind is tuple:
        return "tuple", *(_key(each, depth + 1) for each in cast("tuple[Any, ...]", value))
    if kind is frozenset:
        return "frozenset", *sorted(_key(each, depth + 1) for each in cast("frozenset[Any]", value))
    written = _WRITTEN.get(kind)
    return ("~", id(value)) if written is None else (kind.__name__, written(value))

"""The order in which the elements of a set are written. It does not depend on the hashes of this process.

A process hashes text with a random seed, and objects by their addresses. If a program receives a set with
elements of its own, the order of the elements would reveal both. So elements are sorted. The hashes of
numbers are the same everywhere, so sets of numbers keep their order: an honest program may rely on the order
in which Python keeps small ones.
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
_SORT_VALUES: dict[type, Callable[[Any], object]] = {
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
    datetime: lambda v: (str(v.replace(tzinfo=None)), str(v.utcoffset())),
    time: lambda v: (str(v.replace(tzinfo=None)), str(v.utcoffset())),
    timedelta: lambda v: (v.days, v.seconds, v.microseconds),
}


def in_canonical_order(elements: list[Any]) -> list[Any]:
    """Return the elements of a set in the order in which they are written. ``elements`` have the order of the
    set.

    Objects without a plain form are ordered by address, so mostly by age. If hashes are not random, as in a
    program's process, the order is kept.
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
            pass  # elements of several types cannot be compared
    return sorted(elements, key=_sort_key)


def _is_number(value: Any, depth: int) -> bool:
    """Return whether it is a number, or contains only numbers."""
    if type(value) is tuple or type(value) is frozenset:
        inside = cast("tuple[Any, ...] | frozenset[Any]", value)
        return depth < MAX_DEPTH and all(_is_number(each, depth + 1) for each in inside)
    return type(value) in _NUMBERS


def _is_comparable(value: Any, depth: int) -> bool:
    """Return whether ``<`` orders it and others of its type totally. It does not order sets, and no nan."""
    if type(value) is tuple:
        inside = cast("tuple[Any, ...]", value)
        return depth < MAX_DEPTH and all(_is_comparable(each, depth + 1) for each in inside)
    return type(value) in _COMPARABLE or (type(value) is float and value == value)


def _sort_key(value: Any, depth: int = 0) -> tuple[Any, ...]:
    """Return a key that orders plain values of any types: the name of the type, then the content."""
    kind = type(value)
    # The encoder refuses a deeper value anyway.
    if depth == MAX_DEPTH:
        return (kind.__name__,)
    if kind is tuple:
        return "tuple", *(_sort_key(each, depth + 1) for each in cast("tuple[Any, ...]", value))
    if kind is frozenset:
        return "frozenset", *sorted(_sort_key(each, depth + 1) for each in cast("frozenset[Any]", value))
    written = _SORT_VALUES.get(kind)
    return ("~", id(value)) if written is None else (kind.__name__, written(value))

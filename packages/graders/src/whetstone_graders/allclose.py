"""``numpy.allclose`` on values of builtin types, without numpy: the judge does not import it.

The rule (numpy 2, ``isclose``): |a - b| ≤ absolute + relative · |b| where b is finite, or a == b; nan equals
nothing. Sequences become arrays of one shape, and shapes are broadcast against each other. What numpy cannot
make an array of numbers of (text, None, sets, ragged lists, integers of more than 64 bits in a list) is
not close to anything. (numpy finds None close to an empty array; that is not reproduced.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, cast

_FREE_PAIRS, _PAIRS = 100_000, 4
"""Two arrays that broadcast to more pairs than this, and than so many for each of their elements, are
refused: the answer is a program's, and could ask for any number."""
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_Shape = tuple[int, ...]


class _NoArray(Exception):
    """numpy would raise."""


def allclose(left: object, right: object, *, relative: float, absolute: float) -> bool:
    """Whether all elements of ``left`` are close to those of ``right``, which sets the scale."""
    try:
        (shape, found), (wanted_shape, wanted) = _array(left), _array(right)
        pairs = zip(found, wanted, strict=True)
        if shape != wanted_shape:
            pairs = _broadcast(shape, found, wanted_shape, wanted)
        return all(_close(a, b, relative, absolute) for a, b in pairs)
    except (_NoArray, OverflowError, RecursionError):
        return False


def _close(a: Any, b: Any, relative: float, absolute: float) -> bool:
    b = complex(b) if isinstance(b, complex) else float(b)
    a = complex(a) if isinstance(a, complex) else float(a)
    size = abs(b)
    return a == b or (math.isfinite(size) and abs(a - b) <= absolute + relative * size)


def _array(value: object) -> tuple[_Shape, list[Any]]:
    """Shape and elements, the last index running fastest. Raises _NoArray."""
    if isinstance(value, bool | int | float | complex):
        return (), [value]
    items: list[Any] = []
    return _gather(value, items), items


def _gather(value: object, items: list[Any]) -> _Shape:
    if isinstance(value, bool | int | float | complex):
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            raise _NoArray
        items.append(value)
        return ()
    if not isinstance(value, list | tuple):
        raise _NoArray
    shapes = {_gather(item, items) for item in cast("Iterable[object]", value)}
    if len(shapes) > 1:
        raise _NoArray
    return (len(value), *(shapes.pop() if shapes else ()))


def _broadcast(
    left: _Shape, found: Sequence[Any], right: _Shape, wanted: Sequence[Any]
) -> Iterator[tuple[Any, Any]]:
    """The pairs of elements of two arrays whose shapes differ. Raises _NoArray where they do not fit."""
    dimensions = max(len(left), len(right))
    left = (1,) * (dimensions - len(left)) + left
    right = (1,) * (dimensions - len(right)) + right
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        raise _NoArray
    shape = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
    if math.prod(shape) > _FREE_PAIRS + _PAIRS * (len(found) + len(wanted)):
        raise _NoArray
    for index in product(*map(range, shape)):
        yield found[_place(left, index)], wanted[_place(right, index)]


def _place(shape: _Shape, index: tuple[int, ...]) -> int:
    place = 0
    for size, i in zip(shape, index, strict=True):
        place = place * size + (0 if size == 1 else i)
    return place

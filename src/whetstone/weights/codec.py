"""doc"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from whetstone.weights.bands import Bands, RankedSet, bit_set, choose_bands, members
from whetstone.weights.changes import (
    put_flags,
    put_planes,
    put_positions,
    put_values,
    take_planes,
    take_positions,
    take_values,
)
from whetstone.weights.streams import Bytes, CorruptData, Elements, StreamReader, StreamWriter

# The most elements of a part.
PART_ELEMENTS = 1 << 23

# Kinds 0 and 2 were earlier formats.
_FULL, _DELTA = 3, 4
# Each large band needs an array of a bit for each element.
_MOST_LARGE_BANDS = 8
# Elements that are examined at a time. More do not fit the CPU cache.
_TILE = 1 << 19


def encode_full(blocks: Sequence[Elements]) -> bytes:
    """Encode all elements of ``blocks``, which have one width. Decoding needs no base."""
    elements = np.concatenate(blocks)
    width = elements.dtype.itemsize
    stream = StreamWriter(_FULL, width)
    put_planes(stream, elements, width)
    return bytes(stream.data)


def decode_full(data: Bytes, width: int, count: int) -> Elements:
    """Decode the ``count`` elements of a full part. Raises CorruptData."""
    stream = _open(data, _FULL, width)
    elements = take_planes(stream, count, width, width)
    stream.close()
    return elements


def encode_delta(old: Sequence[Elements], new: Sequence[Elements]) -> tuple[bytes, int]:
    """Encode the changes from ``old`` to ``new``, blocks of equal sizes and one width. Return the bytes and
    the number of changed elements."""
    stream = StreamWriter(_DELTA, new[0].dtype.itemsize)
    bands = choose_bands(old, new)
    found: list[tuple[Elements, ...]] = []
    sets: list[list[Elements]] = []
    start = 0
    for before, after in zip(_tiles(old), _tiles(new), strict=True):
        changed = before != after
        sets.append(bands.sets(before))
        at = members(bit_set(changed) | sets[-1][0])
        found.append((at + start, before.take(at), after.take(at)))
        start += 8 * len(sets[-1][0])
    positions, before, after = map(np.concatenate, zip(*found, strict=True))
    changed = before != after
    if not changed.any():
        return bytes(stream.data), 0
    _put_bands(stream, bands)
    ranked = [RankedSet(np.concatenate(octets)) for octets in list(zip(*sets, strict=True))[1:]]
    chosen: list[Elements] = []
    for number, some in enumerate(_by_band(bands, before)):
        if number < bands.dense:
            flags = changed[some]
            put_flags(stream, flags)
            some = some[np.flatnonzero(flags)]
        else:
            band = ranked[number - bands.dense]
            put_positions(stream, band.ranks(positions[some]), band.size)
        chosen.append(some)
    order = np.concatenate(chosen)
    put_values(stream, before.take(order), after.take(order), list(map(len, chosen)))
    return bytes(stream.data), len(order)


def _by_band(bands: Bands, elements: Elements) -> list[Elements]:
    """Return the positions of the elements of each band."""
    found = bands.of(elements)
    order = np.argsort(found, kind="stable")
    return np.split(order, np.searchsorted(found.take(order), np.arange(1, bands.count)))


def decode_delta(data: Bytes, old: Sequence[Elements]) -> tuple[Elements, Elements]:
    """Return the positions of the changes of a part, ascending, int64; and all its new elements.

    old: the blocks of the part in the base version. Raises CorruptData. The memory is bounded by the size of
    the part, whatever the bytes claim.
    """
    elements = np.concatenate(old)
    stream = _open(data, _DELTA, elements.dtype.itemsize)
    # A part without changes has no more bytes.
    if len(data) == 2:
        return np.empty(0, np.int64), elements
    bands = _take_bands(stream)
    sets = [bands.sets(tile) for tile in _tiles([elements])]
    dense, *large = [np.concatenate(octets) for octets in zip(*sets, strict=True)]
    at = members(dense)
    changed = [
        at[some[take_positions(stream, len(some))]]
        for some in _by_band(bands, elements.take(at))[: bands.dense]
    ]
    for octets in large:
        band = RankedSet(octets)
        changed.append(band.positions(take_positions(stream, band.size)))
    at = np.concatenate(changed)
    elements[at] = take_values(stream, elements.take(at), list(map(len, changed)))
    stream.close()
    return np.sort(at, kind="stable"), elements


def max_part_bytes(width: int, count: int) -> int:
    """Return the most bytes that a part of ``count`` elements can have."""
    return count * (width + 5) + 8192


def _put_bands(stream: StreamWriter, bands: Bands) -> None:
    stream.put_number(bands.dense)
    stream.put_number(len(bands.limits))
    stream.data += bytes(bands.limits)


def _take_bands(stream: StreamReader) -> Bands:
    dense, count = stream.take_number(256), stream.take_number(255)
    limits = tuple(stream.take(count))
    if any(a >= b for a, b in pairwise((0, *limits))):
        raise CorruptData("bands that are not ascending")
    if not 0 <= count + 1 - dense <= _MOST_LARGE_BANDS:
        raise CorruptData("an impossible number of bands")
    return Bands(limits, dense)


def _open(data: Bytes, kind: int, width: int) -> StreamReader:
    stream = StreamReader(data)
    if bytes(stream.take(2)) != bytes((kind, width)):
        raise CorruptData("a part of another kind or width")
    return stream


def _tiles(blocks: Sequence[Elements]) -> Iterator[Elements]:
    """Yield pieces of blocks."""
    for block in blocks:
        for first in range(0, len(block), _TILE):
            yield block[first : first + _TILE]

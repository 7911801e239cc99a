"""Encodes the elements of tensors as bytes: all of them, or the changes since a base version.

An *element* is the bit pattern of a tensor value as an unsigned integer of 1, 2, 4 or 8 bytes. No step
interprets the value, so NaN, infinities and -0.0 are patterns like all others. A *part* is a run of
consecutive elements from one tensor or several. Each part is encoded and decoded independently.

A delta is compressed with the help of the old elements, which both sides have. An optimizer moves all weights
by similar amounts. A weight therefore changes more often, and by more units in the last place, the smaller it
is. The few *small* elements have most of the changes. They are encoded separately for each *magnitude*, which
is the exponent of the old element.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from whetstone.weights.streams import Bytes, CorruptData, Elements, StreamReader, StreamWriter

# The most elements of a part.
PART_ELEMENTS = 1 << 23

# Kinds 0 and 2 were earlier formats.
_FULL, _DELTA = 3, 4
# Elements that are examined at a time. More do not fit the CPU cache.
_TILE = 1 << 19
# At most one in so many elements is small. More of them cost time, fewer cost bytes.
_SMALL = 32
# One in so many elements is counted to find the limit.
_SAMPLE = 128
# Fewer elements share an array with those of the next magnitude, since each array has a fixed cost.
_GROUP = 1024


def encode_full(blocks: Sequence[Elements]) -> bytes:
    """Encode all elements of ``blocks``, which have one width. Decoding needs no base."""
    elements = np.concatenate(blocks)
    stream = StreamWriter(_FULL, elements.dtype.itemsize)
    _put_planes(stream, elements)
    return bytes(stream.data)


def decode_full(data: Bytes, width: int, count: int) -> Elements:
    """Decode the ``count`` elements of a full part. Raises CorruptData."""
    stream = _open(data, _FULL, width)
    elements = _take_planes(stream, width, count)
    stream.close()
    return elements


def encode_delta(old: Sequence[Elements], new: Sequence[Elements]) -> tuple[bytes, int]:
    """Encode the changes from ``old`` to ``new``, blocks of equal sizes and one width. Return the bytes and
    the number of changed elements."""
    stream = StreamWriter(_DELTA, new[0].dtype.itemsize)
    small: list[tuple[Elements, ...]] = []
    large: list[tuple[Elements, ...]] = []
    for (start, before), (_, after) in zip(_tiles(old), _tiles(new), strict=True):
        changed = before != after
        at, magnitudes = _small_elements(before)
        flags = changed[at]
        changed[at] = False
        at = at[np.flatnonzero(flags)]
        small.append((magnitudes, flags, before[at], after[at]))
        at = _true_positions(changed)
        large.append((at + start, before[at], after[at]))
    count = sum(len(tile[-1]) for tile in (*small, *large))
    if not count:
        return bytes(stream.data), 0
    positions, before, after = map(np.concatenate, zip(*large, strict=True))
    _put_positions(stream, positions, sum(map(len, old)))
    _put_values(stream, before, after, [slice(0, len(positions))])
    magnitudes, flags, before, after = map(np.concatenate, zip(*small, strict=True))
    ordered = flags[np.argsort(magnitudes, kind="stable")]
    for group in _groups(magnitudes):
        _put_positions(stream, np.flatnonzero(ordered[group]), group.stop - group.start)
    magnitudes = magnitudes[np.flatnonzero(flags)]
    order = np.argsort(magnitudes, kind="stable")
    _put_values(stream, before[order], after[order], _groups(magnitudes))
    return bytes(stream.data), count


def decode_delta(data: Bytes, old: Sequence[Elements]) -> tuple[Elements, Elements]:
    """Return the positions of the changes of a part, ascending, int64; and all its new elements.

    old: the blocks of the part in the base version. Raises CorruptData. The memory is bounded by the size of
    the part, whatever the bytes claim.
    """
    elements = np.concatenate(old)
    stream = _open(data, _DELTA, elements.dtype.itemsize)
    # A part without changes has no more bytes.
    if len(data) == 2 or not len(elements):
        stream.close()
        return np.empty(0, np.int64), elements
    found = [(start, *_small_elements(tile)) for start, tile in _tiles(old)]
    large = _take_positions(stream, len(elements))
    elements[large] = _take_values(stream, elements[large], [slice(0, len(large))])
    small = np.concatenate([at + start for start, at, _ in found])
    magnitudes = np.concatenate([magnitudes for _, _, magnitudes in found])
    order = np.argsort(magnitudes, kind="stable")
    changed = [
        order[group][_take_positions(stream, group.stop - group.start)] for group in _groups(magnitudes)
    ]
    chosen = np.concatenate([np.empty(0, np.int64), *changed])
    small, magnitudes = small[chosen], magnitudes[chosen]
    elements[small] = _take_values(stream, elements[small], _groups(magnitudes))
    stream.close()
    return np.sort(np.concatenate([large, small]), kind="stable"), elements


def max_part_bytes(width: int, count: int) -> int:
    """Return the most bytes that a part of ``count`` elements can have."""
    return count * (width + 1) + 4096


def _open(data: Bytes, kind: int, width: int) -> StreamReader:
    stream = StreamReader(data)
    if bytes(stream.take(2)) != bytes((kind, width)):
        raise CorruptData("a part of another kind or width")
    return stream


def _tiles(blocks: Sequence[Elements]) -> Iterator[tuple[int, Elements]]:
    """Yield pieces of blocks, with the position of each in the part."""
    start = 0
    for block in blocks:
        for first in range(0, len(block), _TILE):
            yield start + first, block[first : first + _TILE]
        start += len(block)


def _small_elements(tile: Elements) -> tuple[Elements, Elements]:
    """Return the positions and the magnitudes of small elements."""
    # The 8 bits after the sign bit are the exponent of bf16 and fp32.
    unsigned, shift = tile << 1, tile.dtype.itemsize * 8 - 8
    counts = np.cumsum(np.bincount((unsigned[::_SAMPLE] >> shift).astype(np.uint8)))
    limit = int(np.searchsorted(counts, counts[-1] // _SMALL, side="right"))
    at = _true_positions(unsigned < limit << shift)
    return at, (unsigned[at] >> shift).astype(np.uint8)


def _true_positions(flags: Elements) -> Elements:
    """Return the positions where few of many flags are True. This is faster than np.flatnonzero."""
    octets = np.packbits(flags, bitorder="little")
    some = np.flatnonzero(octets != 0)
    within = np.flatnonzero(np.unpackbits(octets[some], bitorder="little").view(bool))
    positions = some[within >> 3]
    positions <<= 3
    within &= 7
    positions += within
    return positions


def _groups(magnitudes: Elements) -> list[slice]:
    """Return the groups of magnitudes once they are sorted. No magnitude is split. Each group but the last
    has at least ``_GROUP`` elements."""
    ends = [0]
    for end in np.cumsum(np.bincount(magnitudes)).tolist():
        if end - ends[-1] >= _GROUP or end == len(magnitudes) > ends[-1]:
            ends.append(end)
    return [slice(start, end) for start, end in pairwise(ends)]


def _put_positions(stream: StreamWriter, positions: Elements, size: int) -> None:
    """Encode ascending positions below ``size``, or the others if these are fewer: the gaps between them, or
    bits if gaps are short."""
    count = len(positions)
    inverted = 2 * count > size
    if inverted:
        count = size - count
    stream.put_number(count << 1 | inverted)
    if _are_rare(count, size) and not inverted:
        _put_gaps(stream, positions, size)
        return
    flags = np.full(size, inverted)
    flags[positions] = not inverted
    if _are_rare(count, size):
        _put_gaps(stream, np.flatnonzero(flags), size)
    else:
        stream.put_bytes(np.packbits(flags))


def _take_positions(stream: StreamReader, size: int) -> Elements:
    count, inverted = divmod(stream.take_number(2 * size + 1), 2)
    if not _are_rare(count, size):
        flags = np.unpackbits(stream.take_bytes(-(-size // 8)), count=size).view(bool)
        return np.flatnonzero(flags != inverted)
    positions = _take_gaps(stream, count, size)
    if not inverted:
        return positions
    flags = np.ones(size, bool)
    flags[positions] = False
    return np.flatnonzero(flags)


def _are_rare(count: int, size: int) -> bool:
    return count * 4 <= size


def _gap_planes(count: int, size: int) -> int:
    """Return the number of low bytes of gaps whose values are equally frequent."""
    return max((size // max(count, 1) >> 1).bit_length() - 1, 0) // 8


def _put_gaps(stream: StreamWriter, positions: Elements, size: int) -> None:
    """Encode ascending positions as the gaps between them.

    Gaps between independent changes are geometrically distributed, so their bytes are independent. A large
    number is several bytes of 255 and the rest.
    """
    gaps = np.diff(positions, prepend=-1) - 1
    for _ in range(_gap_planes(len(positions), size)):
        stream.put_bytes(gaps.astype(np.uint8))
        gaps >>= 8
    more = gaps // 255
    ends = np.cumsum(more + 1)
    symbols = np.full(len(gaps) + int(more.sum()), 255, np.uint8)
    symbols[ends - 1] = gaps - 255 * more
    stream.put_number(len(symbols) - len(positions))
    stream.put_bytes(symbols)


def _take_gaps(stream: StreamReader, count: int, size: int) -> Elements:
    planes = [stream.take_bytes(count) for _ in range(_gap_planes(count, size))]
    symbols = stream.take_bytes(count + stream.take_number(size // 255))
    ends = np.flatnonzero(symbols != 255)
    if len(ends) != count or (count and ends[-1] != len(symbols) - 1):
        raise CorruptData("another number of gaps")
    gaps = np.diff(np.cumsum(symbols, dtype=np.int64)[ends], prepend=0)
    for plane in planes[::-1]:
        gaps = gaps << 8 | plane
    positions = np.cumsum(gaps + 1) - 1
    # Bytes of the network must never write outside the tensor.
    if count and positions[-1] >= size:
        raise CorruptData("a change beyond the last element")
    return positions


def _put_values(stream: StreamWriter, old: Elements, new: Elements, groups: Iterable[slice]) -> None:
    """Encode new elements as the distance from the old one without sign, which has separate statistics for
    each group, its direction, and the elements whose sign changes."""
    bits = old.dtype.itemsize * 8 - 1
    _put_positions(stream, np.flatnonzero((old ^ new) >> bits), len(old))
    old, new = old & ((1 << bits) - 1), new & ((1 << bits) - 1)
    stream.put_bytes(np.packbits(new < old))
    # Most elements move by 1, and arrays of zeros need no bytes.
    distances = np.maximum(old, new) - np.minimum(old, new) - 1
    for group in groups:
        _put_planes(stream, distances[group])


def _take_values(stream: StreamReader, old: Elements, groups: Iterable[slice]) -> Elements:
    bits = old.dtype.itemsize * 8 - 1
    signs = old >> bits
    signs[_take_positions(stream, len(old))] ^= 1
    down = np.unpackbits(stream.take_bytes(-(-len(old) // 8)), count=len(old)).view(bool)
    distances = np.empty_like(old)
    for group in groups:
        distances[group] = _take_planes(stream, old.dtype.itemsize, group.stop - group.start) + 1
    new = np.where(down, old - distances, old + distances) & ((1 << bits) - 1)
    return new | signs << bits


def _put_planes(stream: StreamWriter, elements: Elements) -> None:
    """Encode each byte of elements as an array of its own, lowest first."""
    for n in range(elements.dtype.itemsize):
        stream.put_bytes((elements >> (8 * n)).astype(np.uint8))


def _take_planes(stream: StreamReader, width: int, count: int) -> Elements:
    elements = np.empty(count, f"<u{width}")
    columns = elements.view(np.uint8).reshape(count, width)
    for n in range(width):
        columns[:, n] = stream.take_bytes(count)
    return elements

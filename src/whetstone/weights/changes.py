"""Writes and reads positions, new values and planes of bytes; ``codec.py`` describes their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whetstone.weights.streams import CorruptData, Elements, StreamReader, StreamWriter

# Positions are a bit for each element, or else gaps, whose form is the number of their low bytes.
_BIT_FORM = 4


def put_flags(stream: StreamWriter, flags: Elements) -> None:
    """Write which flags are True."""
    size, count = len(flags), int(np.count_nonzero(flags))
    inverted = 2 * count > size
    if inverted:
        flags, count = ~flags, size - count
    stream.put_number(count << 1 | inverted)
    if 4 * count > size:
        stream.put_number(_BIT_FORM)
        stream.put_bytes(np.packbits(flags))
    elif count:
        _put_gaps(stream, np.flatnonzero(flags), size)


def put_positions(stream: StreamWriter, positions: Elements, size: int) -> None:
    """Write ascending positions below ``size``, as :func:`put_flags` does."""
    if 4 * len(positions) > size:
        flags = np.zeros(size, bool)
        flags[positions] = True
        put_flags(stream, flags)
        return
    stream.put_number(len(positions) << 1)
    if len(positions):
        _put_gaps(stream, positions, size)


def take_positions(stream: StreamReader, size: int) -> Elements:
    """Read ascending positions below ``size``. Raises CorruptData."""
    count, inverted = divmod(stream.take_number(2 * size + 1), 2)
    positions = _take_chosen(stream, count, size) if count else np.empty(0, np.int64)
    if not inverted:
        return positions
    flags = np.ones(size, bool)
    flags[positions] = False
    return np.flatnonzero(flags)


def _take_chosen(stream: StreamReader, count: int, size: int) -> Elements:
    form = stream.take_number(_BIT_FORM)
    if form == _BIT_FORM:
        positions = np.flatnonzero(np.unpackbits(stream.take_bytes(-(-size // 8)), count=size).view(bool))
        if len(positions) != count:
            raise CorruptData("another number of changes")
        return positions
    # Fewer at each step, so that planes of gaps of planes end.
    if 4 * count > size:
        raise CorruptData("positions of another form")
    gaps = take_planes(stream, count, form, 4).astype(np.int64)
    gaps += _take_high_parts(stream, count, size >> (8 * form)) << (8 * form)
    positions = np.cumsum(gaps + 1) - 1
    # Bytes of the network must never write outside the tensor.
    if positions[-1] >= size:
        raise CorruptData("a change beyond the last element")
    return positions


def _put_gaps(stream: StreamWriter, positions: Elements, size: int) -> None:
    """Write the numbers of elements between positions. If changes are independent these are geometrically
    distributed, and their bytes are independent. All values of the low bytes are about equally frequent."""
    gaps = positions.astype(np.uint32)
    gaps[1:] -= gaps[:-1] + 1
    low = (size // len(gaps)).bit_length() // 8
    stream.put_number(low)
    put_planes(stream, gaps, low)
    high = gaps >> (8 * low)
    more = high // 255 if high.max() >= 255 else np.zeros(1, np.uint32)
    stream.put_number(int(more.sum(dtype=np.int64)))
    if not more.any():
        _put_plane(stream, high.astype(np.uint8))
        return
    ends = np.cumsum(more + 1, dtype=np.int64)
    symbols = np.full(int(ends[-1]), 255, np.uint8)
    symbols[ends - 1] = high - 255 * more
    _put_plane(stream, symbols)


def _take_high_parts(stream: StreamReader, count: int, most: int) -> Elements:
    """Read ``count`` numbers with a sum of at most ``most``, int64. A byte of 255 adds to the next one."""
    symbols = _take_plane(stream, count + stream.take_number(most // 255))
    if len(symbols) == count:
        return symbols.astype(np.int64)
    ends = np.flatnonzero(symbols != 255)
    if len(ends) != count or ends[-1] != len(symbols) - 1:
        raise CorruptData("another number of gaps")
    return np.diff(np.cumsum(symbols, dtype=np.int64)[ends], prepend=0)


def put_values(stream: StreamWriter, old: Elements, new: Elements, sizes: Sequence[int]) -> None:
    """Write the new elements at changes. The distances have separate planes for each run of ``sizes``."""
    bits = old.dtype.itemsize * 8 - 1
    put_positions(stream, np.flatnonzero((old ^ new) >> bits != 0), len(old))
    old, new = old & ((1 << bits) - 1), new & ((1 << bits) - 1)
    stream.put_bytes(np.packbits(new < old))
    distances = np.maximum(old, new) - np.minimum(old, new) - 1
    distances <<= 1
    for run in np.split(distances, np.cumsum(sizes)[:-1]):
        put_planes(stream, run, run.dtype.itemsize)


def take_values(stream: StreamReader, old: Elements, sizes: Sequence[int]) -> Elements:
    """Read the new elements at changes. Raises CorruptData."""
    width, bits = old.dtype.itemsize, old.dtype.itemsize * 8 - 1
    signs = old >> bits
    signs[take_positions(stream, len(old))] ^= 1
    down = np.unpackbits(stream.take_bytes(-(-len(old) // 8)), count=len(old)).view(bool)
    distances = np.concatenate([take_planes(stream, size, width, width) for size in sizes])
    distances = (distances >> 1) + 1
    new = np.where(down, old - distances, old + distances) & ((1 << bits) - 1)
    return new | signs << bits


def put_planes(stream: StreamWriter, elements: Elements, count: int) -> None:
    """Write the ``count`` low bytes of elements, each as a plane of its own, lowest first."""
    for n in range(count):
        _put_plane(stream, (elements >> (8 * n)).astype(np.uint8))


def take_planes(stream: StreamReader, size: int, count: int, width: int) -> Elements:
    """Read ``size`` elements of ``width`` bytes, of which the ``count`` low ones were written. Raises
    CorruptData."""
    elements = np.zeros(size, f"<u{width}")
    columns = elements.view(np.uint8).reshape(size, width)
    for n in range(count):
        columns[:, n] = _take_plane(stream, size)
    return elements


def _put_plane(stream: StreamWriter, plane: Elements) -> None:
    """Write bytes. If most are 0, write which are not, and the plane of these, minus 1: a Huffman code has at
    least one bit for each byte, which is too much for the zeros."""
    count = int(np.count_nonzero(plane))
    sparse = 2 * count <= len(plane)
    stream.put_number(sparse)
    if not sparse:
        stream.put_bytes(plane)
    elif not count:
        stream.put_number(0)
    else:
        there = np.flatnonzero(plane)
        put_positions(stream, there, len(plane))
        _put_plane(stream, plane[there] - np.uint8(1))


def _take_plane(stream: StreamReader, size: int) -> Elements:
    if not stream.take_number(1):
        return stream.take_bytes(size)
    plane = np.zeros(size, np.uint8)
    there = take_positions(stream, size)
    # This bounds the depth of the recursion.
    if 2 * len(there) > size:
        raise CorruptData("a plane of another form")
    if len(there):
        plane[there] = _take_plane(stream, len(there)) + np.uint8(1)
    return plane

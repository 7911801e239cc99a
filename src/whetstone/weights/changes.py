"""Writes and reads positions and changes of elements as numbers and arrays of bytes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from whetstone.weights.streams import CorruptData, Elements, StreamReader, StreamWriter

# The form of positions: a bit for each element, or gaps with so many low bits apart.
_BIT_FORM = 255
# The high part of a gap has a mean of at most so many bits.
_HIGH_BITS = 4


def put_flags(stream: StreamWriter, flags: Elements) -> None:
    """Write the positions where flags are True, or the others if these are fewer."""
    count = int(np.count_nonzero(flags))
    inverted = 2 * count > len(flags)
    if inverted:
        flags, count = ~flags, len(flags) - count
    stream.put_number(count << 1 | inverted)
    if count * 4 > len(flags):
        stream.data.append(_BIT_FORM)
        stream.put_bytes(np.packbits(flags))
    elif count:
        _put_gaps(stream, np.flatnonzero(flags), len(flags))


def put_positions(stream: StreamWriter, positions: Elements, size: int) -> None:
    """Write ascending positions below ``size``, in the form of :func:`put_flags`."""
    if len(positions) * 4 > size:
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


def _put_gaps(stream: StreamWriter, positions: Elements, size: int) -> None:
    """Write the numbers of elements between positions. If changes are independent these are geometrically
    distributed, and their low bits are independent of the others."""
    gaps = positions.astype(np.uint32)
    gaps[1:] -= gaps[:-1] + 1
    low = (size // len(gaps)).bit_length() // 8
    stream.data.append(low)
    put_planes(stream, gaps, low)
    _put_small_numbers(stream, gaps >> (8 * low))


def _take_chosen(stream: StreamReader, count: int, size: int) -> Elements:
    [low] = stream.take(1)
    if low == _BIT_FORM:
        positions = np.flatnonzero(np.unpackbits(stream.take_bytes(-(-size // 8)), count=size).view(bool))
        if len(positions) != count:
            raise CorruptData("another number of changes")
        return positions
    if low > 3:
        raise CorruptData("positions of another form")
    gaps = take_planes(stream, count, low, 4).astype(np.int64)
    gaps += _take_small_numbers(stream, count, size >> (8 * low)) << (8 * low)
    gaps += 1
    positions = np.cumsum(gaps)
    positions -= 1
    # Bytes of the network must never write outside the tensor.
    if positions[-1] >= size:
        raise CorruptData("a change beyond the last element")
    return positions


def _put_small_numbers(stream: StreamWriter, numbers: Elements) -> None:
    """Write numbers that are rarely above 254. Each multiple of 255 is a byte of 255 before the rest."""
    if numbers.max() < 255:
        stream.put_number(0)
        stream.put_bytes(numbers.astype(np.uint8))
        return
    more = numbers // 255
    ends = np.cumsum(more + 1, dtype=np.int64)
    symbols = np.full(int(ends[-1]), 255, np.uint8)
    symbols[ends - 1] = numbers - 255 * more
    stream.put_number(len(symbols) - len(numbers))
    stream.put_bytes(symbols)


def _take_small_numbers(stream: StreamReader, count: int, most: int) -> Elements:
    """Read ``count`` numbers whose sum is at most ``most``, as int64."""
    more = stream.take_number(most // 255)
    symbols = stream.take_bytes(count + more)
    if not more:
        return symbols.astype(np.int64)
    ends = np.flatnonzero(symbols != 255)
    if len(ends) != count or ends[-1] != len(symbols) - 1:
        raise CorruptData("another number of gaps")
    return np.diff(np.cumsum(symbols, dtype=np.int64)[ends], prepend=0)


def put_values(stream: StreamWriter, old: Elements, new: Elements, sizes: Iterable[int]) -> None:
    """Write new elements as the elements whose sign changes, and the direction and the distance without sign.

    Distances are divided in bands of ``sizes`` elements."""
    bits = old.dtype.itemsize * 8 - 1
    put_positions(stream, np.flatnonzero((old ^ new) >> bits != 0), len(old))
    old, new = old & ((1 << bits) - 1), new & ((1 << bits) - 1)
    stream.put_bytes(np.packbits(new < old))
    # Most elements move by 1, and arrays of zeros need no bytes.
    distances = np.maximum(old, new) - np.minimum(old, new) - 1
    distances <<= 1
    start = 0
    for size in sizes:
        put_planes(stream, distances[start : start + size], distances.dtype.itemsize)
        start += size


def take_values(stream: StreamReader, old: Elements, sizes: Iterable[int]) -> Elements:
    """Read the new elements. Raises CorruptData."""
    bits = old.dtype.itemsize * 8 - 1
    signs = old >> bits
    signs[take_positions(stream, len(old))] ^= 1
    down = np.unpackbits(stream.take_bytes(-(-len(old) // 8)), count=len(old)).view(bool)
    width = old.dtype.itemsize
    parts = [take_planes(stream, size, width, width) for size in sizes]
    distances = (np.concatenate(parts) >> 1) + 1
    new = np.where(down, old - distances, old + distances) & ((1 << bits) - 1)
    return new | signs << bits


def put_planes(stream: StreamWriter, elements: Elements, count: int) -> None:
    """Write the ``count`` low bytes of elements, each as a plane of its own, lowest first."""
    for n in range(count):
        _put_plane(stream, (elements >> (8 * n)).astype(np.uint8))


def take_planes(stream: StreamReader, size: int, count: int, width: int) -> Elements:
    """Read ``size`` elements of ``width`` bytes, of which the ``count`` low ones were written."""
    elements = np.zeros(size, f"<u{width}")
    columns = elements.view(np.uint8).reshape(size, width)
    for n in range(count):
        columns[:, n] = _take_plane(stream, size)
    return elements


def _put_plane(stream: StreamWriter, plane: Elements) -> None:
    """Write bytes. While most are 0, write which are not, and continue with these, less 1: Huffman codes take at
    least a bit for each byte."""
    while len(plane):
        count = int(np.count_nonzero(plane))
        sparse = 2 * count <= len(plane)
        stream.put_number(sparse)
        if not sparse:
            stream.put_bytes(plane)
            return
        there = np.flatnonzero(plane) if count else np.empty(0, np.int64)
        put_positions(stream, there, len(plane))
        plane = plane[there] - np.uint8(1)


def _take_plane(stream: StreamReader, size: int) -> Elements:
    plane = np.zeros(size, np.uint8)
    there: Elements = np.arange(size)
    base = 0
    while len(there):
        if not stream.take_number(1):
            plane[there] = stream.take_bytes(len(there)) + np.uint8(base)
            break
        chosen = take_positions(stream, len(there))
        if 2 * len(chosen) > len(there):
            raise CorruptData("a plane of another form")
        there, base = there[chosen], base + 1
        plane[there] = base
    return plane

"""Writes and reads positions, new values and planes of bytes; ``codec.py`` describes their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whetstone.weights.streams import CorruptData, Elements, StreamReader, StreamWriter

# Forms of positions: a bit for each element, or the gaps between them.
_BITS, _GAPS = 0, 1
# The bits of the high parts of numbers that differ, which Huffman codes compress. The low bits are random.
_HIGH_BITS = 4
# The most numbers that are examined to choose the number of low bits.
_SAMPLE = 256


def put_flags(stream: StreamWriter, flags: Elements) -> None:
    """Write which flags are True."""
    size, count = len(flags), int(np.count_nonzero(flags))
    inverted = 2 * count > size
    if inverted:
        flags, count = ~flags, size - count
    stream.put_number(count << 1 | inverted)
    if 4 * count > size:
        stream.put_number(_BITS)
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
    if stream.take_number(_GAPS) == _BITS:
        positions = np.flatnonzero(np.unpackbits(stream.take_bytes(-(-size // 8)), count=size).view(bool))
        if len(positions) != count:
            raise CorruptData("another number of changes")
        return positions
    # Fewer at each step, so that planes of positions of planes end.
    if 4 * count > size:
        raise CorruptData("positions of another form")
    positions = np.cumsum(_take_numbers(stream, count, size.bit_length()) + 1) - 1
    # Bytes of the network must never write outside the tensor.
    if positions[-1] >= size:
        raise CorruptData("a change beyond the last element")
    return positions


def _put_gaps(stream: StreamWriter, positions: Elements, size: int) -> None:
    """Write the numbers of elements between positions, which are geometrically distributed if changes are
    independent."""
    gaps = positions.astype(np.uint32)
    gaps[1:] -= gaps[:-1] + 1
    stream.put_number(_GAPS)
    _put_numbers(stream, gaps, size // len(gaps))


def _put_numbers(stream: StreamWriter, numbers: Elements, spread: int) -> None:
    """Write numbers, most of which differ by less than ``spread``: their low bits and their high parts."""
    low = max(spread.bit_length() - _HIGH_BITS, 0)
    extra = _extra_bytes(numbers >> low)
    if 4 * int(extra.sum()) > len(numbers):
        low = max(int(numbers.max()).bit_length() - 8, 0)
        extra = _extra_bytes(numbers >> low)
    stream.put_number(low)
    for bit in range(low):
        stream.put_bytes(np.packbits((numbers >> bit).astype(np.uint8) & 1))
    count = int(extra.sum())
    stream.put_number(count)
    high = (numbers >> low).astype(np.uint8)
    if count:
        ends = np.cumsum(extra + 1)
        symbols = np.full(int(ends[-1]), 255, np.uint8)
        symbols[ends - 1] = (numbers >> low) - 255 * extra.astype(numbers.dtype)
        high = symbols
    _put_plane(stream, high)


def _extra_bytes(high: Elements) -> Elements:
    """Return how many bytes of 255 precede the last byte of each high part, at most the number of parts;
    only a 0 if there are none."""
    if high.max() < 255:
        return np.zeros(1, np.int64)
    return np.minimum(high // 255, len(high)).astype(np.int64)


def _take_numbers(stream: StreamReader, count: int, bits: int) -> Elements:
    """Read ``count`` numbers of about ``bits`` bits at most, int64."""
    low = stream.take_number(bits)
    numbers = np.zeros(count, np.int64)
    for bit in range(low):
        numbers |= np.unpackbits(stream.take_bytes(-(-count // 8)), count=count).astype(np.int64) << bit
    symbols = _take_plane(stream, count + stream.take_number(count))
    high = symbols.astype(np.int64)
    if len(symbols) > count:
        ends = np.flatnonzero(symbols != 255)
        if len(ends) != count or ends[-1] != len(symbols) - 1:
            raise CorruptData("another number of numbers")
        high = np.diff(np.cumsum(high)[ends], prepend=0)
    return numbers | high << low


def put_values(stream: StreamWriter, old: Elements, new: Elements, sizes: Sequence[int]) -> None:
    """Write the new elements at changes. Each run of ``sizes`` changes has distances of its own."""
    bits = old.dtype.itemsize * 8 - 1
    put_positions(stream, np.flatnonzero((old ^ new) >> bits != 0), len(old))
    old, new = old & ((1 << bits) - 1), new & ((1 << bits) - 1)
    stream.put_bytes(np.packbits(new < old))
    distances = np.maximum(old, new) - np.minimum(old, new) - 1
    for run in np.split(distances, np.cumsum(sizes)[:-1]):
        if len(run):
            sample = np.sort(run[:: -(-len(run) // _SAMPLE)])
            _put_numbers(stream, run, int(sample[len(sample) * 5 // 6] - sample[len(sample) // 6]))


def take_values(stream: StreamReader, old: Elements, sizes: Sequence[int]) -> Elements:
    """Read the new elements at changes. Raises CorruptData."""
    bits = old.dtype.itemsize * 8 - 1
    signs = old >> bits
    signs[take_positions(stream, len(old))] ^= 1
    down = np.unpackbits(stream.take_bytes(-(-len(old) // 8)), count=len(old)).view(bool)
    runs = [_take_numbers(stream, size, bits) for size in sizes if size]
    distances = np.concatenate([np.empty(0, np.int64), *runs]).astype(old.dtype) + 1
    new = np.where(down, old - distances, old + distances) & ((1 << bits) - 1)
    return new | signs << bits


def put_planes(stream: StreamWriter, elements: Elements) -> None:
    """Write elements as a plane of each of their bytes, lowest first."""
    for n in range(elements.dtype.itemsize):
        _put_plane(stream, (elements >> (8 * n)).astype(np.uint8))


def take_planes(stream: StreamReader, size: int, width: int) -> Elements:
    """Read ``size`` elements of ``width`` bytes. Raises CorruptData."""
    elements = np.empty(size, f"<u{width}")
    columns = elements.view(np.uint8).reshape(size, width)
    for n in range(width):
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

"""Encodes the elements of tensors as bytes: all of them, or the changes since a base version.

An *element* is the bit pattern of a tensor value as an unsigned integer of 1, 2, 4 or 8 bytes. No step
interprets the value, so NaN, infinities and -0.0 are patterns like all others. A *part* is a run of
consecutive elements from one tensor or several. Each part is encoded and decoded independently.

A delta is compressed with the help of the old elements, which both sides have. An optimizer moves all
weights by similar amounts. The smaller a weight is, the more often its bf16 value changes, and by the
more units in the last place. Elements are therefore divided into *bands* by the magnitude of the old
element, with separate statistics. The position of a change is the number of the element among those of
its band.

Format
------

*Number*: groups of 7 bits, lowest first. The highest bit of a byte says that another byte follows
(LEB128).

*Array* of n bytes, or of n bits with the first in the highest bit of a byte, where the reader knows n:
the number 0 and the bytes, or the size of a zstd frame and the frame.

*Plane* of n bytes: the number 0 and an array. Or the number 1, the positions of the bytes that are not 0,
at most half of them, and the plane of these bytes minus 1.

*Planes* of elements: the plane of the lowest byte of each element, the plane of the next byte, and so on.

*Numbers*, n of them: the number s; s arrays of n bits each, which are the lowest bit of each number, the
next bit and so on; a number e of at most n; and the plane of n + e bytes with the rest of each number. Of
these bytes, 255 is added to the next one.

*Positions*, ascending, below n: the number 2 c + i. The c positions follow if i is 0, and the c other
ones if i is 1. Unless c is 0, they are the number 0 and an array of n bits, of which c are 1; or the
number 1 and the gaps between them as numbers (0 between neighbours), if c is at most n / 4.

*Full part*: the byte 3, the bytes of an element, and the planes of the elements, each rotated to the left
by a bit. The highest plane of bf16 and fp32 is then the exponent, which compresses.

*Raw part*: the byte 5, the bytes of an element, six bytes of 0, and the elements. It is a full part for a
link that is faster than the compression. It is only sent to a replica that asks for it, and never stored.

*Delta part*: the byte 4 and the bytes of an element. If something changed, it continues with:

1. The number of dense bands, the number of bands minus 1, and the lowest magnitude of each band but the
   first, as a byte. A magnitude is the 8 bits after the sign bit. At most 8 bands are not dense.
2. For each band, the positions of changes.
3. The changes, in the order of bands: the positions of those whose sign changes; an array of bits, which
   are 1 where the new element without its sign is smaller; and, for each band, the distances as numbers:
   the difference of the elements without signs, minus 1. Where only the sign changes, it wraps around.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from whetstone.weights.bands import TILE, Bands, RankedSet, changed_set, choose_bands, members
from whetstone.weights.streams import Bytes, CorruptData, Elements, StreamReader, StreamWriter

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
    # Eight bits could not hold the number of parts.
    return np.minimum((high // 255).astype(np.int64), len(high))


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


# The number of this format. Publisher and replica need the same.
FORMAT = 2
# The most bytes of the elements of a part. Smaller parts need less memory, and more bytes for statistics.
PART_BYTES = 1 << 24

# Kinds 0 to 2 were parts of format 1.
_FULL, _DELTA, _RAW = 3, 4, 5
# The bytes before the elements of a raw part, which are aligned.
_RAW_HEAD = 8
# Each needs a bit for each element in memory.
_MOST_LARGE_BANDS = 8


def encode_full(blocks: Sequence[Elements]) -> bytes:
    """Encode all elements of ``blocks``, which have one width. Decoding needs no base."""
    elements = np.concatenate(blocks)
    width = elements.dtype.itemsize
    stream = StreamWriter(_FULL, width)
    put_planes(stream, elements << 1 | elements >> (8 * width - 1))
    return bytes(stream.data)


def raw_head(width: int) -> bytes:
    """Return the bytes before the elements of a raw part."""
    return bytes((_RAW, width)).ljust(_RAW_HEAD, b"\0")


def decode_full(data: Bytes, width: int, count: int) -> Elements:
    """Decode the ``count`` elements of a full part, or view those of a raw one. Raises CorruptData."""
    if data[:_RAW_HEAD] == raw_head(width):
        if len(data) != _RAW_HEAD + count * width:
            raise CorruptData("a raw part of another size")
        return np.frombuffer(data, f"<u{width}", offset=_RAW_HEAD)
    stream = _open(data, _FULL, width)
    elements = take_planes(stream, count, width)
    stream.close()
    lowest = elements << (8 * width - 1)
    elements >>= 1
    elements |= lowest
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
        sets.append(bands.sets(before))
        at = members(changed_set(before, after) | sets[-1][0])
        found.append((at + start, before.take(at), after.take(at)))
        # A tile ends with an octet, so these positions are those in the sets of the whole part.
        start += 8 * len(sets[-1][0])
    if not any((before != after).any() for _, before, after in found):
        return bytes(stream.data), 0
    positions, before, after = map(np.concatenate, zip(*found, strict=True))
    stream.put_number(bands.dense)
    stream.put_number(len(bands.limits))
    stream.data += bytes(bands.limits)
    changed = before != after
    groups = bands.split(before)
    for number, group in enumerate(groups[: bands.dense]):
        flags = changed[group]
        put_flags(stream, flags)
        groups[number] = group[np.flatnonzero(flags)]
    _, *large = zip(*sets, strict=True)
    for octets, group in zip(large, groups[bands.dense :], strict=True):
        band = RankedSet(np.concatenate(octets))
        put_positions(stream, band.ranks(positions[group]), band.size)
    order = np.concatenate(groups)
    put_values(stream, before.take(order), after.take(order), list(map(len, groups)))
    return bytes(stream.data), len(order)


def decode_delta(data: Bytes, old: Sequence[Elements]) -> tuple[Elements, Elements]:
    """Return the positions of the changes of a part, ascending, int64; and all its new elements, a copy.

    old: the blocks of the part in the base version. Raises CorruptData. The memory is bounded by the size of
    the part, whatever the bytes claim.
    """
    elements = np.concatenate(old)
    stream = _open(data, _DELTA, elements.dtype.itemsize)
    if len(data) == 2 or not len(elements):
        stream.close()
        return np.empty(0, np.int64), elements
    bands = _take_bands(stream)
    sets = [bands.sets(tile) for tile in _tiles([elements])]
    dense, *large = (np.concatenate(octets) for octets in zip(*sets, strict=True))
    at = members(dense)
    groups = bands.split(elements.take(at))[: bands.dense]
    changed = [at[group[take_positions(stream, len(group))]] for group in groups]
    for octets in large:
        band = RankedSet(octets)
        changed.append(band.positions(take_positions(stream, band.size)))
    at = np.concatenate(changed)
    elements[at] = take_values(stream, elements.take(at), list(map(len, changed)))
    stream.close()
    # The positions in each band are ascending, and a stable sort merges them.
    return np.sort(at, kind="stable"), elements


def max_part_bytes(width: int, count: int) -> int:
    """Return the most bytes that a part of ``count`` elements can have."""
    return count * (width + 5) + 8192


def _take_bands(stream: StreamReader) -> Bands:
    dense, count = stream.take_number(256), stream.take_number(255)
    limits = tuple(stream.take(count))
    if any(one >= other for one, other in pairwise((0, *limits))):
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
        for first in range(0, len(block), TILE):
            yield block[first : first + TILE]

"""Encodes the elements of tensors as bytes: all of them, or the changes since a base version.

An *element* is the bit pattern of a tensor value as an unsigned integer of 1, 2, 4 or 8 bytes. No step
interprets the value, so NaN, infinities and -0.0 are patterns like all others. A *part* is a run of
consecutive elements from one tensor or several. Each part is encoded and decoded independently.

A delta holds, for the changed elements, the gaps between their positions and the distance that each moved. RL
optimizer steps usually move a bf16 weight by one unit in the last place. An element is therefore mapped to
its rank among all floats, where neighbours differ by one. The sign of the distance is one bit. The rest is
nearly always 0, except for small weights, whose unit is small; it is encoded separately for each magnitude,
which the decoder knows from the old elements. Gaps between independent changes are geometrically distributed,
so their bytes are independent. Data that is mostly 0 is a bit plane of the non-zero positions and the bytes
at those positions, because zstd spends at least a bit on the most frequent byte. zstd compresses each plane.
A plane that does not shrink is stored as it is.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

Elements = NDArray[Any]
"""One-dimensional array of unsigned integers of 1, 2, 4 or 8 bytes."""

Bytes = bytes | bytearray | memoryview

# The most elements of a part. Positions within a part fit 32 bits.
PART_ELEMENTS = 1 << 22

# Kind 1 was an earlier format of deltas.
_FULL, _DELTA = 0, 2
# Kind, bytes of an element, number of frames, number of changes.
_HEADER = struct.Struct("<BBHI")
# Fewer changes of one magnitude share planes with others, since each plane has a fixed cost.
_SMALL_GROUP = 1024
_LENGTH = struct.Struct("<I")
# The 64-bit lanes that are compared at a time. Lanes and result fit the CPU cache.
_LANES = 1 << 16


class CorruptData(ValueError):
    """Bytes that no encoder wrote."""


def encode_full(blocks: Sequence[Elements]) -> bytes:
    """Encode all elements of ``blocks``, which have one width. Decoding needs no base."""
    elements = np.concatenate(blocks)
    width = elements.dtype.itemsize
    planes = [_pack(plane) for plane in _byte_planes(elements, width)]
    return _assemble(_FULL, width, len(elements), planes)


def encode_delta(old: Sequence[Elements], new: Sequence[Elements]) -> tuple[bytes, int]:
    """Encode the changes from ``old`` to ``new``, blocks of equal sizes and one width. Return the bytes and
    the number of changed elements."""
    positions: list[Elements] = []
    before: list[Elements] = []
    after: list[Elements] = []
    start = 0
    for left, right in zip(old, new, strict=True):
        for at, one, other in _changes(left, right):
            positions.append(at + np.uint32(start))
            before.append(one)
            after.append(other)
        start += len(left)
    width = new[0].dtype.itemsize
    if not positions:
        return _assemble(_DELTA, width, 0, []), 0
    at, previous = np.concatenate(positions), np.concatenate(before)
    gaps = np.diff(at, prepend=np.uint32(0))
    # Positions are ascending and different, so a gap is at least 1.
    gaps[1:] -= 1
    distances = _zigzag(_float_order(np.concatenate(after)) - _float_order(previous)) - 1
    order, sizes = _group_by_exponent(previous)
    parts = [
        _encode_sparse(gaps >> 8),
        *map(_encode_sparse, np.split(distances[order] >> 1, np.cumsum(sizes)[:-1])),
    ]
    counts = bytes(len(frames) - 1 for frames in parts)
    signs = _pack(np.packbits((distances & 1).astype(np.uint8)))
    frames = [_pack((gaps & 255).astype(np.uint8)), signs, counts, *(f for frames in parts for f in frames)]
    return _assemble(_DELTA, width, len(at), frames), len(at)


def decode_full(data: Bytes, width: int, count: int) -> Elements:
    """Decode the ``count`` elements of a full part. Raises CorruptData."""
    changes, frames = _parse(data, _FULL, width, count)
    if changes != count or len(frames) != width:
        raise CorruptData("a full part of another size")
    return _from_byte_planes([_unpack(frame, count) for frame in frames], _dtype(width))


def decode_delta(
    data: Bytes, width: int, count: int, read_old: Callable[[Elements], Elements]
) -> tuple[Elements, Elements]:
    """Return the positions of changes among ``count`` elements, ascending, int64; and the new elements there.

    read_old: returns the old elements at ascending positions. Raises CorruptData. No more memory is allocated
    than the part itself needs, whatever the bytes claim.
    """
    changes, frames = _parse(data, _DELTA, width, count)
    if changes > count or (changes and len(frames) < 4):
        raise CorruptData("more changes than elements, or too few frames")
    if not changes:
        return np.empty(0, np.int64), np.empty(0, _dtype(width))
    low, signs, counts, *rest = frames
    left, planes = iter(rest), list(counts)
    gaps = _decode_sparse(left, planes[:1], 3, changes, np.dtype("<u4")) << 8 | _unpack(low, changes)
    positions = np.cumsum(gaps, dtype=np.int64)
    positions += np.arange(changes)
    # Bytes of the network must never write outside the tensor.
    if positions[-1] >= count:
        raise CorruptData("a change beyond the last element")
    old = read_old(positions)
    order, sizes = _group_by_exponent(old)
    if len(planes) != len(sizes) + 1:
        raise CorruptData("changes of elements of other magnitudes")
    halved = np.empty(changes, _dtype(width))
    parts = [
        _decode_sparse(left, [n], width, int(size), _dtype(width))
        for n, size in zip(planes[1:], sizes, strict=True)
    ]
    halved[order] = np.concatenate(parts)
    bits = np.unpackbits(_unpack(signs, -(-changes // 8)), count=changes)
    if next(left, None) is not None:
        raise CorruptData("more planes than the changes need")
    return positions, shift_elements(old, _unzigzag((halved << 1 | bits) + 1))


def shift_elements(elements: Elements, distances: Elements) -> Elements:
    """Move elements by ``distances`` in the order of floats."""
    return _float_order(_float_order(elements) + distances)


def max_part_bytes(width: int, count: int) -> int:
    """Return the most bytes that a part of ``count`` elements can have."""
    return count * (width + 5) + 8192


def _changes(old: Elements, new: Elements) -> list[tuple[Elements, Elements, Elements]]:
    """Return (positions, old elements, new elements) of runs of changes, in order. Positions are uint32.

    The comparison uses lanes of 64 bits: most lanes are equal, and only the few others are examined.
    """
    each = 8 // old.dtype.itemsize
    shift, mask = np.uint32(each.bit_length() - 1), np.uint32(each - 1)
    body = len(old) // each * each
    left, right = old[:body].view(np.uint64), new[:body].view(np.uint64)
    unequal = np.empty(min(_LANES, len(left)), bool)
    found: list[tuple[Elements, Elements, Elements]] = []
    for start in range(0, len(left), _LANES):
        one, other = left[start : start + _LANES], right[start : start + _LANES]
        lanes = np.flatnonzero(np.not_equal(one, other, out=unequal[: len(one)]))
        if not len(lanes):
            continue
        before, after = one[lanes].view(old.dtype), other[lanes].view(old.dtype)
        within = np.flatnonzero(before != after).astype(np.uint32)
        at = (lanes.astype(np.uint32)[within >> shift] << shift) + (within & mask)
        found.append((at + np.uint32(start * each), before[within], after[within]))
    tail = np.flatnonzero(old[body:] != new[body:])
    if len(tail):
        at = (tail + body).astype(np.uint32)
        found.append((at, old[at], new[at]))
    return found


def _group_by_exponent(elements: Elements) -> tuple[Elements, Elements]:
    """Return an order that groups elements by exponent, and the size of each group."""
    bits = elements.dtype.itemsize * 8
    kinds = ((elements >> (bits - 8)) & 127).astype(np.uint8)
    rare = np.bincount(kinds, minlength=128) < _SMALL_GROUP
    kinds[rare[kinds]] = 127
    sizes = np.bincount(kinds)
    return np.argsort(kinds, kind="stable"), sizes[sizes > 0]


def _encode_sparse(elements: Elements) -> list[bytes]:
    """Encode elements that are mostly 0 as frames: their non-zero positions, and the byte planes of the
    values minus 1."""
    there = elements != 0
    return [_pack(np.packbits(there)), *map(_pack, _byte_planes(elements[there] - 1))]


def _decode_sparse(
    frames: Iterator[memoryview], planes: Sequence[int], most: int, count: int, dtype: np.dtype[Any]
) -> Elements:
    """Decode the ``count`` elements of the next frames. The first entry of ``planes`` is the number of
    planes."""
    number = planes[0] if planes else most + 1
    found = list(islice(frames, number + 1))
    if number > most or len(found) != number + 1:
        raise CorruptData("planes that are missing, or too many")
    there = np.unpackbits(_unpack(found[0], -(-count // 8)), count=count).view(bool)
    size = int(np.count_nonzero(there))
    elements = np.zeros(count, dtype)
    elements[there] = _from_byte_planes([_unpack(frame, size) for frame in found[1:]], dtype, size) + 1
    return elements


def _float_order(elements: Elements) -> Elements:
    """Map bit patterns of floats to integers in the order of the floats (modulo the width). It is its own
    inverse."""
    bits = elements.dtype.itemsize * 8
    signed = elements.view(f"<i{elements.dtype.itemsize}")
    return (signed ^ ((signed >> (bits - 1)) & ((1 << (bits - 1)) - 1))).view(elements.dtype)


def _zigzag(distances: Elements) -> Elements:
    """Map 0, -1, 1, -2, … to 0, 1, 2, 3, …"""
    signed = distances.view(f"<i{distances.dtype.itemsize}")
    return ((signed << 1) ^ (signed >> (distances.dtype.itemsize * 8 - 1))).view(distances.dtype)


def _unzigzag(elements: Elements) -> Elements:
    return (elements >> 1) ^ (0 - (elements & 1))


def _dtype(width: int) -> np.dtype[Any]:
    return np.dtype(f"<u{width}")


def _byte_planes(elements: Elements, count: int | None = None) -> list[Elements]:
    """Return the first ``count`` bytes of each element, one plane per byte, lowest first; None: all non-zero
    planes."""
    if count is None:
        count = (int(elements.max()).bit_length() + 7) // 8 if len(elements) else 0
    columns = elements.view(np.uint8).reshape(len(elements), elements.dtype.itemsize)
    return [np.ascontiguousarray(columns[:, n]) for n in range(count)]


def _from_byte_planes(planes: Sequence[Elements], dtype: np.dtype[Any], count: int = 0) -> Elements:
    elements = np.zeros(len(planes[0]) if planes else count, dtype)
    columns = elements.view(np.uint8).reshape(len(elements), dtype.itemsize)
    for n, plane in enumerate(planes):
        columns[:, n] = plane
    return elements


_thread_state = threading.local()


def _compressor() -> zstandard.ZstdCompressor:
    """Return this thread's compressor. Creating one takes longer than compressing a small plane."""
    found: zstandard.ZstdCompressor | None = getattr(_thread_state, "compressor", None)
    if found is None:
        found = _thread_state.compressor = zstandard.ZstdCompressor(level=1)
    return found


def _pack(plane: Elements) -> bytes:
    # A plane that does not shrink is stored as it is, and recognized by its length.
    packed = _compressor().compress(plane.data)
    return packed if len(packed) < len(plane) else plane.tobytes()


def _unpack(frame: memoryview, size: int) -> Elements:
    """Return the ``size`` bytes of a plane. The claimed size is checked before memory is allocated. Raises
    CorruptData."""
    if len(frame) == size:
        return np.frombuffer(frame, np.uint8)
    try:
        claimed = zstandard.get_frame_parameters(frame).content_size
        if claimed != size:
            raise CorruptData("a plane of another size")
        data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptData(f"a plane that zstd cannot read: {error}") from None
    if len(data) != size:
        raise CorruptData("a plane of another size")
    return np.frombuffer(data, np.uint8)


def _assemble(kind: int, width: int, changes: int, frames: Sequence[bytes]) -> bytes:
    header = _HEADER.pack(kind, width, len(frames), changes)
    return b"".join([header, *(_LENGTH.pack(len(frame)) for frame in frames), *frames])


def _parse(data: Bytes, kind: int, width: int, count: int) -> tuple[int, list[memoryview]]:
    """Return the number of changes and the frames of a part."""
    view = memoryview(data)
    if len(view) < _HEADER.size or len(view) > max_part_bytes(width, count):
        raise CorruptData("a part of an impossible size")
    found, size, number, changes = _HEADER.unpack_from(view)
    if (found, size) != (kind, width):
        raise CorruptData("a part of another kind or width")
    start = _HEADER.size + number * _LENGTH.size
    if len(view) < start:
        raise CorruptData("a part that ends early")
    frames: list[memoryview] = []
    for n in range(number):
        length: int = _LENGTH.unpack_from(view, _HEADER.size + n * _LENGTH.size)[0]
        frames.append(view[start : start + length])
        start += length
    if start != len(view):
        raise CorruptData("a part whose planes do not fill it")
    return changes, frames

"""Words of tensors as bytes: all of them, or what changed since a base.

A *word* is the bit pattern of an element as an unsigned integer of 1, 2, 4 or 8 bytes; no step looks at
numbers, so NaN, infinities and -0.0 are patterns like all others. A *part* is some words in a row, from one
tensor or several; its bytes are made and read by themselves, whatever became of other parts.

A delta holds, of the words that changed: the gaps between them, and how far each moved. Optimizer steps of
RL move a bf16 weight by one unit in the last place, seldom more. So a word is seen as its place among all
floats in order, where neighbours differ by one; of the way from the old place to the new the sign is one bit,
and the rest is nearly always 0, but for small weights, whose unit is small: it is coded apart for words of
each magnitude, which the other side knows. Gaps of independent changes are geometric, of which the bytes are
independent of each other. What is mostly 0 is a plane of bits that say where it is not, and the bytes of what
is there: zstd spends a bit on the most frequent byte. Each plane is entropy-coded by zstd. What does not
shrink is kept as it is.
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

Words = NDArray[Any]
"""One-dimensional, unsigned, 1, 2, 4 or 8 bytes each."""

Bytes = bytes | bytearray | memoryview

PART_WORDS = 1 << 22
"""The most words of a part; positions in one fit 32 bits."""

_FULL, _DELTA = 0, 2  # 1 was an earlier form of deltas
_HEADER = struct.Struct("<BBHI")  # kind, bytes of a word, frames, changes
_FEW = 1024  # changes of one magnitude that are not worth planes of their own
_LENGTH = struct.Struct("<I")
_LANES = 1 << 16  # 64-bit lanes that are compared at a time: they and the result stay in the cache


class Damaged(ValueError):
    """Bytes that no encoder made."""


def encode_full(blocks: Sequence[Words]) -> bytes:
    """All words of ``blocks``, which have one width. Reads back without a base."""
    words = np.concatenate(blocks)
    width = words.dtype.itemsize
    planes = [_pack(plane) for plane in _planes(words, width)]
    return _joined(_FULL, width, len(words), planes)


def encode_delta(old: Sequence[Words], new: Sequence[Words]) -> tuple[bytes, int]:
    """What turns ``old`` into ``new``, blocks of equal sizes and one width; and how many words changed."""
    positions: list[Words] = []
    before: list[Words] = []
    after: list[Words] = []
    start = 0
    for left, right in zip(old, new, strict=True):
        for at, one, other in _changes(left, right):
            positions.append(at + np.uint32(start))
            before.append(one)
            after.append(other)
        start += len(left)
    width = new[0].dtype.itemsize
    if not positions:
        return _joined(_DELTA, width, 0, []), 0
    at, was = np.concatenate(positions), np.concatenate(before)
    gaps = np.diff(at, prepend=np.uint32(0))
    gaps[1:] -= 1
    away = _zigzag(_ordered(np.concatenate(after)) - _ordered(was)) - 1
    order, sizes = _by_magnitude(was)
    parts = [_sparse(gaps >> 8), *map(_sparse, np.split(away[order] >> 1, np.cumsum(sizes)[:-1]))]
    counts = bytes(len(frames) - 1 for frames in parts)
    signs = _pack(np.packbits((away & 1).astype(np.uint8)))
    frames = [_pack((gaps & 255).astype(np.uint8)), signs, counts, *(f for frames in parts for f in frames)]
    return _joined(_DELTA, width, len(at), frames), len(at)


def decode_full(data: Bytes, width: int, count: int) -> Words:
    """The ``count`` words of a full part. Raises Damaged."""
    changes, frames = _split(data, _FULL, width, count)
    if changes != count or len(frames) != width:
        raise Damaged("a full part of another size")
    return _from_planes([_unpack(frame, count) for frame in frames], _dtype(width))


def decode_delta(data: Bytes, width: int, count: int, held: Callable[[Words], Words]) -> tuple[Words, Words]:
    """Positions of changes among ``count`` words, ascending, int64; and the new words there.

    held: the old words at ascending positions. Raises Damaged. Nothing larger than the part itself is
    allocated, whatever the bytes say.
    """
    changes, frames = _split(data, _DELTA, width, count)
    if changes > count or (changes and len(frames) < 4):
        raise Damaged("more changes than words, or less than they need")
    if not changes:
        return np.empty(0, np.int64), np.empty(0, _dtype(width))
    low, signs, counts, *rest = frames
    left, planes = iter(rest), list(counts)
    gaps = _from_sparse(left, planes[:1], 3, changes, np.dtype("<u4")) << 8 | _unpack(low, changes)
    positions = np.cumsum(gaps, dtype=np.int64)
    positions += np.arange(changes)
    if positions[-1] >= count:
        raise Damaged("a change beyond the last word")
    was = held(positions)
    order, sizes = _by_magnitude(was)
    if len(planes) != len(sizes) + 1:
        raise Damaged("changes of words of other magnitudes")
    far = np.empty(changes, _dtype(width))
    parts = [
        _from_sparse(left, [n], width, int(size), _dtype(width))
        for n, size in zip(planes[1:], sizes, strict=True)
    ]
    far[order] = np.concatenate(parts)
    bits = np.unpackbits(_unpack(signs, -(-changes // 8)), count=changes)
    if next(left, None) is not None:
        raise Damaged("more planes than changes need")
    return positions, moved(was, _unzigzag((far << 1 | bits) + 1))


def moved(words: Words, distances: Words) -> Words:
    """Words after they moved by ``distances`` among all floats in order."""
    return _ordered(_ordered(words) + distances)


def most_bytes(width: int, count: int) -> int:
    """The most bytes that a part of ``count`` words can have."""
    return count * (width + 5) + 8192


def _changes(old: Words, new: Words) -> list[tuple[Words, Words, Words]]:
    """(positions, old words, new words) of changes in runs of words, in order. Positions are uint32.

    Compared in lanes of 64 bits: of most nothing changed, and the rest are few enough to be looked into.
    """
    each = 8 // old.dtype.itemsize
    shift, mask = np.uint32(each.bit_length() - 1), np.uint32(each - 1)
    body = len(old) // each * each
    left, right = old[:body].view(np.uint64), new[:body].view(np.uint64)
    unequal = np.empty(min(_LANES, len(left)), bool)
    found: list[tuple[Words, Words, Words]] = []
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


def _by_magnitude(words: Words) -> tuple[Words, Words]:
    """An order in which words of a like exponent are together, and how many there are of each kind."""
    bits = words.dtype.itemsize * 8
    kinds = ((words >> (bits - 8)) & 127).astype(np.uint8)
    rare = np.bincount(kinds, minlength=128) < _FEW
    kinds[rare[kinds]] = 127
    sizes = np.bincount(kinds)
    return np.argsort(kinds, kind="stable"), sizes[sizes > 0]


def _sparse(words: Words) -> list[bytes]:
    """Words of which most are 0 as frames: where they are not, and the planes of what is there, less 1."""
    there = words != 0
    return [_pack(np.packbits(there)), *map(_pack, _planes(words[there] - 1))]


def _from_sparse(
    frames: Iterator[memoryview], planes: Sequence[int], most: int, count: int, dtype: np.dtype[Any]
) -> Words:
    """The ``count`` words whose frames are next, with as many planes as the first of ``planes`` says."""
    number = planes[0] if planes else most + 1
    found = list(islice(frames, number + 1))
    if number > most or len(found) != number + 1:
        raise Damaged("planes that are missing, or too many")
    there = np.unpackbits(_unpack(found[0], -(-count // 8)), count=count).view(bool)
    size = int(np.count_nonzero(there))
    words = np.zeros(count, dtype)
    words[there] = _from_planes([_unpack(frame, size) for frame in found[1:]], dtype, size) + 1
    return words


def _ordered(words: Words) -> Words:
    """Bit patterns of floats as integers in the floats' order (modulo the width); its own inverse."""
    bits = words.dtype.itemsize * 8
    signed = words.view(f"<i{words.dtype.itemsize}")
    return (signed ^ ((signed >> (bits - 1)) & ((1 << (bits - 1)) - 1))).view(words.dtype)


def _zigzag(distances: Words) -> Words:
    """0, -1, 1, -2, … as 0, 1, 2, 3, …"""
    signed = distances.view(f"<i{distances.dtype.itemsize}")
    return ((signed << 1) ^ (signed >> (distances.dtype.itemsize * 8 - 1))).view(distances.dtype)


def _unzigzag(words: Words) -> Words:
    return (words >> 1) ^ (0 - (words & 1))


def _dtype(width: int) -> np.dtype[Any]:
    return np.dtype(f"<u{width}")


def _planes(words: Words, count: int | None = None) -> list[Words]:
    """The first ``count`` bytes of each word, a plane for each, lowest first; as many as hold anything."""
    if count is None:
        count = (int(words.max()).bit_length() + 7) // 8 if len(words) else 0
    columns = words.view(np.uint8).reshape(len(words), words.dtype.itemsize)
    return [np.ascontiguousarray(columns[:, n]) for n in range(count)]


def _from_planes(planes: Sequence[Words], dtype: np.dtype[Any], count: int = 0) -> Words:
    words = np.zeros(len(planes[0]) if planes else count, dtype)
    columns = words.view(np.uint8).reshape(len(words), dtype.itemsize)
    for n, plane in enumerate(planes):
        columns[:, n] = plane
    return words


_own = threading.local()


def _compressor() -> zstandard.ZstdCompressor:
    """That of this thread: to make one takes longer than to compress a small plane."""
    found: zstandard.ZstdCompressor | None = getattr(_own, "compressor", None)
    if found is None:
        found = _own.compressor = zstandard.ZstdCompressor(level=1)
    return found


def _pack(plane: Words) -> bytes:
    packed = _compressor().compress(plane.data)
    return packed if len(packed) < len(plane) else plane.tobytes()


def _unpack(frame: memoryview, size: int) -> Words:
    """The ``size`` bytes of a plane. Its claim is checked before room is made for it. Raises Damaged."""
    if len(frame) == size:
        return np.frombuffer(frame, np.uint8)
    try:
        claimed = zstandard.get_frame_parameters(frame).content_size
        if claimed != size:
            raise Damaged("a plane of another size")
        data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Damaged(f"a plane that zstd cannot read: {error}") from None
    if len(data) != size:
        raise Damaged("a plane of another size")
    return np.frombuffer(data, np.uint8)


def _joined(kind: int, width: int, changes: int, frames: Sequence[bytes]) -> bytes:
    header = _HEADER.pack(kind, width, len(frames), changes)
    return b"".join([header, *(_LENGTH.pack(len(frame)) for frame in frames), *frames])


def _split(data: Bytes, kind: int, width: int, count: int) -> tuple[int, list[memoryview]]:
    """The changes and the frames of a part."""
    view = memoryview(data)
    if len(view) < _HEADER.size or len(view) > most_bytes(width, count):
        raise Damaged("a part of an impossible size")
    found, size, number, changes = _HEADER.unpack_from(view)
    if (found, size) != (kind, width):
        raise Damaged("a part of another kind or width")
    start = _HEADER.size + number * _LENGTH.size
    if len(view) < start:
        raise Damaged("a part that ends early")
    frames: list[memoryview] = []
    for n in range(number):
        length: int = _LENGTH.unpack_from(view, _HEADER.size + n * _LENGTH.size)[0]
        frames.append(view[start : start + length])
        start += length
    if start != len(view):
        raise Damaged("a part whose planes do not fill it")
    return changes, frames

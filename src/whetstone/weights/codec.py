"""Words of tensors as bytes: all of them, or what changed since a base.

A *word* is the bit pattern of an element as an unsigned integer of 1, 2, 4 or 8 bytes; no step looks at
numbers, so NaN, infinities and -0.0 are patterns like all others. A *part* is some words in a row, from one
tensor or several; its bytes are made and read by themselves, whatever became of other parts.

A delta holds, of the words that changed: the gaps between them, and how far each moved. Optimizer steps of
RL move a bf16 weight by one unit in the last place, seldom more. So a word is seen as its place among all
floats in order, where neighbours differ by one; of the way from the old place to the new the sign is one bit,
and the rest is nearly always 0. Gaps of independent changes are geometric, of which the bytes are independent
of each other: each byte of gaps and of the rest is a plane of its own, entropy-coded by zstd. What does not
shrink is kept as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

Words = NDArray[Any]
"""One-dimensional, unsigned, 1, 2, 4 or 8 bytes each."""

Bytes = bytes | bytearray | memoryview

PART_WORDS = 1 << 22
"""The most words of a part; positions in one fit 32 bits."""

_FULL, _DELTA = 0, 1
_HEADER = struct.Struct("<BBBBI")  # kind, bytes of a word, planes of gaps, planes of distances, changes
_LENGTH = struct.Struct("<I")
_LANES = 1 << 16  # 64-bit lanes that are compared at a time: they and the result stay in the cache


class Damaged(ValueError):
    """Bytes that no encoder made."""


def encode_full(blocks: Sequence[Words]) -> bytes:
    """All words of ``blocks``, which have one width. Reads back without a base."""
    words = np.concatenate(blocks)
    width = words.dtype.itemsize
    planes = [_pack(plane) for plane in _planes(words, width)]
    return _joined(_HEADER.pack(_FULL, width, 0, 0, len(words)), planes)


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
        return _HEADER.pack(_DELTA, width, 0, 0, 0), 0
    at = np.concatenate(positions)
    gaps = np.diff(at, prepend=np.uint32(0))
    gaps[1:] -= 1
    away = _zigzag(_ordered(np.concatenate(after)) - _ordered(np.concatenate(before))) - 1
    signs = _pack(np.packbits((away & 1).astype(np.uint8)))
    gap_planes, far_planes = _planes(gaps), _planes(away >> 1)
    header = _HEADER.pack(_DELTA, width, len(gap_planes), len(far_planes), len(at))
    return _joined(header, [*map(_pack, gap_planes), signs, *map(_pack, far_planes)]), len(at)


def decode_full(data: Bytes, width: int, count: int) -> Words:
    """The ``count`` words of a full part. Raises Damaged."""
    _, _, changes, frames = _split(data, _FULL, width, count)
    if changes != count or len(frames) != width:
        raise Damaged("a full part of another size")
    return _from_planes([_unpack(frame, count) for frame in frames], _dtype(width))


def decode_delta(data: Bytes, width: int, count: int) -> tuple[Words, Words]:
    """Positions of changes among ``count`` words, ascending, int64; how far each moves, for :func:`moved`.

    Raises Damaged. Nothing larger than the part itself is allocated, whatever the bytes say.
    """
    gap_planes, far_planes, changes, frames = _split(data, _DELTA, width, count)
    if changes > count or gap_planes > 4 or far_planes > width:
        raise Damaged("more changes than words")
    if not changes:
        return np.empty(0, np.int64), np.empty(0, _dtype(width))
    gaps = _from_planes([_unpack(f, changes) for f in frames[:gap_planes]], np.dtype("<u4"), changes)
    positions = np.cumsum(gaps, dtype=np.int64)
    positions += np.arange(changes)
    if positions[-1] >= count:
        raise Damaged("a change beyond the last word")
    signs = np.unpackbits(_unpack(frames[gap_planes], -(-changes // 8)), count=changes)
    far = _from_planes([_unpack(f, changes) for f in frames[gap_planes + 1 :]], _dtype(width), changes)
    return positions, _unzigzag((far << 1 | signs) + 1)


def moved(words: Words, distances: Words) -> Words:
    """Words after they moved by ``distances`` among all floats in order."""
    return _ordered(_ordered(words) + distances)


def most_bytes(width: int, count: int) -> int:
    """The most bytes that a part of ``count`` words can have."""
    return count * (width + 5) + 1024


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
        count = (int(words.max()).bit_length() + 7) // 8
    columns = words.view(np.uint8).reshape(len(words), words.dtype.itemsize)
    return [np.ascontiguousarray(columns[:, n]) for n in range(count)]


def _from_planes(planes: Sequence[Words], dtype: np.dtype[Any], count: int = 0) -> Words:
    words = np.zeros(len(planes[0]) if planes else count, dtype)
    columns = words.view(np.uint8).reshape(len(words), dtype.itemsize)
    for n, plane in enumerate(planes):
        columns[:, n] = plane
    return words


def _pack(plane: Words) -> bytes:
    packed = zstandard.ZstdCompressor(level=1).compress(plane.data)
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


def _joined(header: bytes, frames: Sequence[bytes]) -> bytes:
    return b"".join([header, *(_LENGTH.pack(len(frame)) for frame in frames), *frames])


def _split(data: Bytes, kind: int, width: int, count: int) -> tuple[int, int, int, list[memoryview]]:
    """Planes of gaps, planes of distances, changes, and the frames of a part."""
    view = memoryview(data)
    if len(view) < _HEADER.size or len(view) > most_bytes(width, count):
        raise Damaged("a part of an impossible size")
    found, size, gaps, far, changes = _HEADER.unpack_from(view)
    if (found, size) != (kind, width):
        raise Damaged("a part of another kind or width")
    number = width if kind == _FULL else gaps + far + 1 if changes else 0
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
    return gaps, far, changes, frames

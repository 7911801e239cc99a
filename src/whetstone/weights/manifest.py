"""What a version is: named tensors, their shapes and types, and a checksum of each and of all.

The words of every tensor are cut into *blocks*, each with a checksum of its own, so that a version can be
compared, fetched and verified piece by piece, in any order, by those who hold a shard of it or all. The
checksum of a version is that of its contents alone: of the model, the tensors and the blocks. How it travels
(a base, shards, parts) is no part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import zstandard
from blake3 import blake3
from msgspec import Struct

from whetstone.weights.codec import PART_WORDS, Bytes, Damaged, Words

MANIFEST_BYTES = 8 << 20
"""The most that a manifest may have, read: some 250,000 blocks, which is a model of a trillion parameters."""

_DIGEST = 16
T = TypeVar("T")


class Mark(Struct, frozen=True):
    """A version by its number and the checksum of what it holds."""

    number: int
    digest: bytes


class TensorSpec(Struct, frozen=True, array_like=True):
    """A tensor: its name, torch's name of its type (``bfloat16``), its shape, and its words."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    width: int
    words: int


class Block(Struct, frozen=True, array_like=True):
    """Words ``offset`` to ``offset + count`` of the tensor of that index, and their checksum."""

    tensor: int
    offset: int
    count: int
    digest: bytes


class Shard(Struct, frozen=True):
    """What one rank encoded: its blocks, and the end of each part among them; where it is served, if not
    where the manifest is.

    changed: words that differ from the base, and ``size``: bytes of all parts; both only of deltas.
    """

    blocks: list[Block]
    parts: list[int]
    address: str = ""
    changed: int = 0
    size: int = 0

    def part(self, index: int) -> list[Block]:
        """The blocks of a part."""
        return self.blocks[self.parts[index - 1] if index else 0 : self.parts[index]]


class Manifest(Struct, frozen=True, dict=True):
    """A version as it is published: what it holds, and in which parts it can be had.

    base: the version that the parts are changes of; None if they are complete.
    """

    model: str
    number: int
    base: Mark | None
    tensors: list[TensorSpec]
    shards: list[Shard]
    digest: bytes

    @cached_property
    def mark(self) -> Mark:
        """Its number and checksum."""
        return Mark(self.number, self.digest)

    @cached_property
    def size(self) -> int:
        """Bytes of all its words."""
        return sum(spec.words * spec.width for spec in self.tensors)

    def part_keys(self) -> Iterator[tuple[int, int]]:
        """Every part, as a shard and its number there."""
        for shard, found in enumerate(self.shards):
            yield from ((shard, part) for part in range(len(found.parts)))

    def part_shape(self, shard: int, part: int) -> tuple[int, int]:
        """Bytes of a word of a part, and its words."""
        blocks = self.shards[shard].part(part)
        return self.tensors[blocks[0].tensor].width, sum(block.count for block in blocks)


def digest(words: Words) -> bytes:
    """The checksum of a block."""
    return blake3(words.data.cast("B")).digest(_DIGEST)


def make_manifest(
    model: str, number: int, tensors: list[TensorSpec], shards: list[Shard], base: Mark | None = None
) -> Manifest:
    """A manifest of shards that together hold every tensor. Raises ValueError when they do not."""
    _check_parts(tensors, shards)
    return Manifest(model, number, base, tensors, shards, _content_digest(model, tensors, shards))


def dump(manifest: Manifest) -> bytes:
    """A manifest as bytes."""
    return packed(manifest)


def load(data: Bytes, limit: int = MANIFEST_BYTES) -> Manifest:
    """Read :func:`dump`'s bytes, which may be anybody's. Raises Damaged for no manifest, or a false one.

    Its parts then cover every tensor once, no part is larger than PART_WORDS, and the checksum is that of its
    contents.
    """
    manifest = unpacked(data, Manifest, limit)
    try:
        _check_parts(manifest.tensors, manifest.shards)
    except ValueError as error:
        raise Damaged(str(error)) from None
    if _content_digest(manifest.model, manifest.tensors, manifest.shards) != manifest.digest:
        raise Damaged("a manifest whose checksum is not that of its contents")
    return manifest


def packed(found: Struct) -> bytes:
    """A struct as compressed msgpack, which :func:`unpacked` reads."""
    return zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(found))


def unpacked(data: Bytes, kind: type[T], limit: int) -> T:
    """A struct out of compressed msgpack of at most ``limit`` bytes. Raises Damaged."""
    try:
        size = zstandard.get_frame_parameters(data).content_size
        if not 0 < size <= limit:
            raise Damaged(f"a manifest of {size} bytes, of which {limit} are read")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
        return msgspec.msgpack.decode(raw, type=kind)
    except (zstandard.ZstdError, msgspec.DecodeError, RecursionError) as error:
        raise Damaged(f"no manifest: {error}") from None


def cut(specs: Sequence[TensorSpec], pieces: Iterable[tuple[int, int, int]]) -> tuple[list[Block], list[int]]:
    """Blocks, yet without checksums, and the ends of parts, of pieces (tensor, offset, count) of tensors.

    A part holds neighbours of one width, PART_WORDS words at most.
    """
    blocks: list[Block] = []
    parts: list[int] = []
    width = room = 0
    for tensor, offset, count in pieces:
        for start in range(0, count, PART_WORDS):
            size = min(PART_WORDS, count - start)
            if blocks and (size > room or specs[tensor].width != width):
                parts.append(len(blocks))
                room = 0
            if not room:
                width, room = specs[tensor].width, PART_WORDS
            blocks.append(Block(tensor, offset + start, size, b""))
            room -= size
    return blocks, [*parts, len(blocks)] if blocks else []


def _content_digest(model: str, tensors: Sequence[TensorSpec], shards: Iterable[Shard]) -> bytes:
    blocks = sorted((b for shard in shards for b in shard.blocks), key=lambda b: (b.tensor, b.offset))
    content: tuple[Any, ...] = (model, tensors, blocks)
    return blake3(msgspec.msgpack.encode(content)).digest(_DIGEST)


def _check_parts(tensors: Sequence[TensorSpec], shards: Sequence[Shard]) -> None:
    """Raise ValueError unless the parts are within bounds and hold every word of every tensor once."""
    for spec in tensors:
        if spec.width not in (1, 2, 4, 8) or min((spec.words, *spec.shape)) < 0:
            raise ValueError(f"`{spec.name}`: words of {spec.width} bytes, {spec.words} of them")
        if spec.words < math.prod(spec.shape):
            raise ValueError(f"`{spec.name}`: {spec.words} words for the shape {spec.shape}")
    if len({spec.name for spec in tensors}) < len(tensors):
        raise ValueError("two tensors of one name")
    for shard in shards:
        _check_shard(tensors, shard)
    reached = [0] * len(tensors)
    for block in sorted((b for s in shards for b in s.blocks), key=lambda b: (b.tensor, b.offset)):
        if block.offset != reached[block.tensor]:
            raise ValueError(f"`{tensors[block.tensor].name}`: words that are missing, or there twice")
        reached[block.tensor] += block.count
    for spec, words in zip(tensors, reached, strict=True):
        if words != spec.words:
            raise ValueError(f"`{spec.name}`: {words} of {spec.words} words")


def _check_shard(tensors: Sequence[TensorSpec], shard: Shard) -> None:
    bad = any(
        not (0 <= b.tensor < len(tensors)) or b.offset < 0 or b.count < 1 or len(b.digest) != _DIGEST
        for b in shard.blocks
    )
    if bad or shard.parts != sorted(set(shard.parts)) or (shard.parts or [0])[-1] != len(shard.blocks):
        raise ValueError("blocks or parts out of bounds")
    if shard.parts and shard.parts[0] < 1:
        raise ValueError("an empty part")
    for part in range(len(shard.parts)):
        blocks = shard.part(part)
        if sum(block.count for block in blocks) > PART_WORDS:
            raise ValueError("a part that is too large")
        if len({tensors[block.tensor].width for block in blocks}) > 1:
            raise ValueError("a part of two widths")

"""The description of a version: named tensors with shapes and types, a checksum of each block, and one of the
whole.

The elements of every tensor are split into *blocks*, each with its own checksum. A version can therefore be
compared, fetched and verified piece by piece, in any order, by replicas that hold all tensors or only a
shard. The checksum of a version covers its contents only: model, tensors and blocks. Transport details (base,
shards, parts) are not part of it.
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

from whetstone.core.errors import UserError
from whetstone.weights.codec import FORMAT, PART_BYTES
from whetstone.weights.streams import Bytes, CorruptData, Elements

# The most bytes of a decompressed manifest: about 250,000 blocks, a model of a trillion parameters.
MANIFEST_BYTES = 8 << 20

_DIGEST = 16
# Torch has no tensors with more. The product of many sizes would cost quadratic time.
_MOST_DIMENSIONS = 64
T = TypeVar("T")


class FormatMismatch(UserError):
    """Weights that another version of Whetstone published."""


class VersionId(Struct, frozen=True):
    """A version by number and content checksum."""

    number: int
    digest: bytes


class TensorSpec(Struct, frozen=True, array_like=True):
    """A tensor: name, torch's name of its type (``bfloat16``), shape, bytes per element, and number of
    elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    width: int
    elements: int


class TensorBlock(Struct, frozen=True, array_like=True):
    """Elements ``offset`` to ``offset + count`` of the tensor with that index, and their checksum."""

    tensor: int
    offset: int
    count: int
    digest: bytes


class Shard(Struct, frozen=True):
    """What one rank encoded: its blocks, the end of each part among them, and its address if it differs from
    the manifest's.

    changed: elements that differ from the base, and ``size``: bytes of all parts; only set for deltas.
    """

    blocks: list[TensorBlock]
    parts: list[int]
    address: str = ""
    changed: int = 0
    size: int = 0

    def part(self, index: int) -> list[TensorBlock]:
        """Return the blocks of a part."""
        return self.blocks[self.parts[index - 1] if index else 0 : self.parts[index]]


class Manifest(Struct, frozen=True, dict=True):
    """A published version: its contents, and the parts in which it can be fetched.

    base: the version that the parts are changes of; None if they are complete. format: how the parts are
    encoded. Manifests of the first format do not state it.
    """

    model: str
    number: int
    base: VersionId | None
    tensors: list[TensorSpec]
    shards: list[Shard]
    digest: bytes
    format: int = 1

    @cached_property
    def version_id(self) -> VersionId:
        """Its number and checksum."""
        return VersionId(self.number, self.digest)

    @cached_property
    def size(self) -> int:
        """Bytes of all its elements."""
        return sum(spec.elements * spec.width for spec in self.tensors)

    def part_keys(self) -> Iterator[tuple[int, int]]:
        """Yield every part as (shard index, part index)."""
        for shard, found in enumerate(self.shards):
            yield from ((shard, part) for part in range(len(found.parts)))

    def part_shape(self, shard: int, part: int) -> tuple[int, int]:
        """Return the bytes per element and the number of elements of a part."""
        blocks = self.shards[shard].part(part)
        return self.tensors[blocks[0].tensor].width, sum(block.count for block in blocks)


def digest(elements: Elements) -> bytes:
    """Return the checksum of a block."""
    return blake3(elements.data.cast("B")).digest(_DIGEST)


def make_manifest(
    model: str, number: int, tensors: list[TensorSpec], shards: list[Shard], base: VersionId | None = None
) -> Manifest:
    """Build the manifest of shards that together hold every tensor. Raises ValueError if they do not."""
    _check_parts(tensors, shards)
    return Manifest(model, number, base, tensors, shards, _content_digest(model, tensors, shards), FORMAT)


def dump_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest."""
    return encode_struct(manifest)


def load_manifest(data: Bytes) -> Manifest:
    """Decode the bytes of :func:`dump_manifest`, which may be untrusted. Raises CorruptData for an invalid
    manifest, and FormatMismatch for one of another version of Whetstone.

    The result is validated: its parts cover every tensor once, no part has elements of more than PART_BYTES,
    its base is an earlier version, and the checksum matches the contents.
    """
    manifest = decode_struct(data, Manifest, MANIFEST_BYTES)
    if manifest.format != FORMAT:
        raise FormatMismatch(
            f"version {manifest.number} of the weights is published in format {manifest.format}, and format "
            f"{FORMAT} is read here: install the same version of Whetstone on all hosts"
        )
    # A reader follows the bases of changes back to a version that it has, which must end.
    if manifest.base is not None and manifest.base.number >= manifest.number:
        raise CorruptData(f"version {manifest.number} as changes of version {manifest.base.number}")
    try:
        _check_parts(manifest.tensors, manifest.shards)
    except ValueError as error:
        raise CorruptData(str(error)) from None
    if _content_digest(manifest.model, manifest.tensors, manifest.shards) != manifest.digest:
        raise CorruptData("a manifest whose checksum does not match its contents")
    return manifest


def encode_struct(found: Struct) -> bytes:
    """Encode a struct as compressed msgpack with a checksum."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(msgspec.msgpack.encode(found))


def decode_struct(data: Bytes, struct_type: type[T], limit: int) -> T:
    """Decode compressed msgpack of at most ``limit`` bytes. Raises CorruptData."""
    try:
        size = zstandard.get_frame_parameters(data).content_size
        if not 0 < size <= limit:
            raise CorruptData(f"a manifest of {size} bytes, of which {limit} are read")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
        return msgspec.msgpack.decode(raw, type=struct_type)
    except (zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptData(f"no manifest: {error}") from None


def split_into_blocks(
    specs: Sequence[TensorSpec], pieces: Iterable[tuple[int, int, int]]
) -> tuple[list[TensorBlock], list[int]]:
    """Return blocks without checksums, and the ends of parts, for pieces (tensor, offset, count).

    A part holds consecutive pieces of one element width, at most PART_BYTES.
    """
    blocks: list[TensorBlock] = []
    parts: list[int] = []
    width = room = 0
    for tensor, offset, count in pieces:
        most = PART_BYTES // specs[tensor].width
        for start in range(0, count, most):
            size = min(most, count - start)
            if blocks and (size > room or specs[tensor].width != width):
                parts.append(len(blocks))
                room = 0
            if not room:
                width, room = specs[tensor].width, most
            blocks.append(TensorBlock(tensor, offset + start, size, b""))
            room -= size
    return blocks, [*parts, len(blocks)] if blocks else []


def _content_digest(model: str, tensors: Sequence[TensorSpec], shards: Iterable[Shard]) -> bytes:
    blocks = sorted((b for shard in shards for b in shard.blocks), key=lambda b: (b.tensor, b.offset))
    content: tuple[Any, ...] = (model, tensors, blocks)
    return blake3(msgspec.msgpack.encode(content)).digest(_DIGEST)


def _check_parts(tensors: Sequence[TensorSpec], shards: Sequence[Shard]) -> None:
    """Raise ValueError unless the parts are within bounds and hold every element of every tensor once."""
    for spec in tensors:
        if spec.width not in (1, 2, 4, 8) or min((spec.elements, *spec.shape)) < 0:
            raise ValueError(f"`{spec.name}`: elements of {spec.width} bytes, {spec.elements} of them")
        if len(spec.shape) > _MOST_DIMENSIONS:
            raise ValueError(f"`{spec.name}`: {len(spec.shape)} dimensions")
        if spec.elements < math.prod(spec.shape):
            raise ValueError(f"`{spec.name}`: {spec.elements} elements for the shape {spec.shape}")
    if len({spec.name for spec in tensors}) < len(tensors):
        raise ValueError("two tensors of one name")
    for shard in shards:
        _check_shard(tensors, shard)
    reached = [0] * len(tensors)
    for block in sorted((b for s in shards for b in s.blocks), key=lambda b: (b.tensor, b.offset)):
        if block.offset != reached[block.tensor]:
            raise ValueError(f"`{tensors[block.tensor].name}`: elements that are missing, or there twice")
        reached[block.tensor] += block.count
    for spec, elements in zip(tensors, reached, strict=True):
        if elements != spec.elements:
            raise ValueError(f"`{spec.name}`: {elements} of {spec.elements} elements")


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
        if sum(block.count * tensors[block.tensor].width for block in blocks) > PART_BYTES:
            raise ValueError("a part that is too large")
        if len({tensors[block.tensor].width for block in blocks}) > 1:
            raise ValueError("a part of two widths")

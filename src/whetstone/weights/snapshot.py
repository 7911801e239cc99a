"""A version's elements in host memory: the base of later versions, and the source of copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from whetstone.engine.host_copies import HostCopies
from whetstone.engine.weights import DeferredWeight
from whetstone.weights.manifest import TensorBlock, TensorSpec
from whetstone.weights.shards import TensorShard, elements_of, published_dtype
from whetstone.weights.streams import Elements


class _SnapshotTensor(NamedTuple):
    spec: TensorSpec
    start: int
    """The index of the first element that this rank has."""
    tensor: Tensor
    elements: Elements


class RankSnapshot:
    """Buffers for the tensors of one rank, reused for later versions; floats are cast to ``dtype`` if
    given."""

    def __init__(self, pieces: Sequence[TensorShard], dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._held = [_allocate(piece, dtype) for piece in pieces]
        self.specs = [held.spec for held in self._held]

    @property
    def extents(self) -> list[tuple[int, int, int]]:
        """The (tensor, offset, count) of the elements that this rank has."""
        return [(n, h.start, len(h.elements)) for n, h in enumerate(self._held) if len(h.elements)]

    @property
    def size(self) -> int:
        """Bytes of the elements that this rank has."""
        return sum(held.elements.nbytes for held in self._held)

    def check(self, pieces: Iterable[TensorShard]) -> None:
        """Raise ValueError unless the shards match the buffers."""
        for held, piece in zip(self._held, pieces, strict=True):
            spec = piece.spec(self._dtype)
            if spec != held.spec or piece.offset * _integers_per_value(spec) != held.start:
                raise ValueError(
                    f"weights: `{spec.name}` differs from the previous version in shape, type or shard"
                )

    def fill(self, pieces: Iterable[TensorShard]) -> None:
        """Copy the shards in; :meth:`check` must accept them."""
        copies = HostCopies()
        for held, piece in zip(self._held, pieces, strict=True):
            tensor = piece.tensor
            if isinstance(tensor, DeferredWeight):
                # Making a deferred weight gathers it from all ranks, one tensor at a time.
                tensor = tensor.make(held.tensor.dtype)
            copies.start(tensor.detach().reshape(-1), held.tensor.copy_, held.tensor.dtype)
        copies.finish()

    def block(self, block: TensorBlock) -> Elements:
        """Return the elements of a block that this rank has."""
        held = self._held[block.tensor]
        start = block.offset - held.start
        return held.elements[start : start + block.count]


def _allocate(piece: TensorShard, dtype: torch.dtype | None) -> _SnapshotTensor:
    spec = piece.spec(dtype)
    tensor = piece.tensor
    size = tensor.shape.numel()
    room = torch.empty(size, dtype=published_dtype(tensor, dtype))
    return _SnapshotTensor(spec, piece.offset * _integers_per_value(spec), room, elements_of(room))


def _integers_per_value(spec: TensorSpec) -> int:
    """Return the integers per value: 1, except for the largest complex type."""
    return getattr(torch, spec.dtype).itemsize // spec.width

"""Views tensors as elements, and finds the shards of them that this rank has.

A snapshot holds a version's elements in host memory: the base of later versions, and the source of copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from whetstone.engine.host_copies import HostCopies
from whetstone.engine.weights import DeferredWeight
from whetstone.weights.manifest import TensorBlock, TensorSpec
from whetstone.weights.streams import Elements

# The torch integer types of elements, by bytes.
INTEGER_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class TensorShard:
    """The values of a tensor from ``offset`` in flat order that this rank has: all, or some."""

    name: str
    shape: tuple[int, ...]
    offset: int
    tensor: Tensor | DeferredWeight

    def spec(self, dtype: torch.dtype | None) -> TensorSpec:
        """Return its published form. Raises ValueError for a DeferredWeight without a given type."""
        found = published_dtype(self.tensor, dtype)
        width = min(found.itemsize, 8)
        elements = math.prod(self.shape) * found.itemsize // width
        return TensorSpec(self.name, str(found).removeprefix("torch."), self.shape, width, elements)


def whole_tensors(weights: Iterable[tuple[str, object]]) -> Iterator[TensorShard]:
    """Yield whole weights, including deferred ones (``DeferredWeight``), as shards."""
    for name, weight in weights:
        if not isinstance(weight, Tensor | DeferredWeight):
            raise ValueError(f"weights: `{name}` is a {type(weight).__name__}, not a tensor")
        yield TensorShard(name, tuple(weight.shape), 0, weight)


def rank_shards(weights: Iterable[tuple[str, object]], rank: int, size: int) -> Iterator[TensorShard]:
    """Yield the shards of one of ``size`` ranks: its rows of FSDP2 tensors and of deferred weights
    (``DeferredWeight``); on rank 0 also all replicated tensors.

    Every rank yields a shard of every tensor, which may be empty. Raises ValueError for a tensor that is
    sharded in another dimension than its first.
    """
    for name, weight in weights:
        if isinstance(weight, DeferredWeight):
            yield _rank_rows(name, weight, rank, size)
            continue
        if not isinstance(weight, Tensor):
            raise ValueError(f"weights: `{name}` is a {type(weight).__name__}, not a tensor")
        if not isinstance(weight, DTensor):
            tensor = weight if rank == 0 else weight.reshape(-1)[:0]
            yield TensorShard(name, tuple(weight.shape), 0, tensor)
            continue
        mesh, placements = weight.device_mesh, weight.placements
        if any((isinstance(p, Shard) and p.dim != 0) or p.is_partial() for p in placements):
            raise ValueError(f"weights: `{name}` is sharded as {placements}; only rows can be")
        _, start = compute_local_shape_and_global_offset(weight.shape, mesh, placements)
        local = weight.to_local()
        copies = [place for p, place in zip(placements, mesh.get_coordinate() or (), strict=True)
                  if not isinstance(p, Shard)]  # fmt: skip
        if any(copies):
            local = local.reshape(-1)[:0]
        row = math.prod(weight.shape[1:])
        yield TensorShard(name, tuple(weight.shape), start[0] * row if start and local.numel() else 0, local)


def _rank_rows(name: str, weight: DeferredWeight, rank: int, size: int) -> TensorShard:
    """Return a rank's rows of a tensor that all ranks compute together."""
    rows = weight.shape[0]
    first, end = rows * rank // size, rows * (rank + 1) // size
    own_rows = DeferredWeight(
        torch.Size((end - first, *weight.shape[1:])), lambda d: weight.make(d)[first:end]
    )
    return TensorShard(name, tuple(weight.shape), first * math.prod(weight.shape[1:]), own_rows)


def published_dtype(tensor: Tensor | DeferredWeight, dtype: torch.dtype | None) -> torch.dtype:
    """Return the type in which a weight is published: ``dtype`` for floats if given, else its own type."""
    if isinstance(tensor, DeferredWeight):
        if dtype is None:
            raise ValueError("weights that exist only when they are made need the type to be published in")
        return dtype
    return dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype


def elements_of(tensor: Tensor) -> Elements:
    """Return a tensor's elements, sharing its memory. Raises ValueError unless it is contiguous and on the
    CPU."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError("only contiguous tensors in host memory can be viewed as elements")
    width = min(tensor.dtype.itemsize, 8)
    flat: Any = tensor.detach().reshape(-1).view(INTEGER_DTYPES[width]).numpy()
    return flat.view(f"<u{width}")


def as_tensor(elements: Elements) -> Tensor:
    """Return elements as a tensor of integers, sharing their memory."""
    width = elements.dtype.itemsize
    return torch.from_numpy(elements.view(f"<i{width}" if width > 1 else "u1"))


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

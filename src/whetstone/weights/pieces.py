"""Tensors as words: whole ones, and the shards of them that this rank has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from whetstone.engine.weights import Deferred
from whetstone.weights.codec import Words
from whetstone.weights.manifest import TensorSpec

SIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers that torch sees words as, by their bytes."""


@dataclass(frozen=True)
class Piece:
    """The elements of a tensor from ``offset`` on, in their flat order, that this rank has: all, or some."""

    name: str
    shape: tuple[int, ...]
    offset: int
    tensor: Tensor | Deferred

    def spec(self, dtype: torch.dtype | None) -> TensorSpec:
        """What is published of it. Raises ValueError for what exists only when made, in no given type."""
        found = published_dtype(self.tensor, dtype)
        width = min(found.itemsize, 8)
        words = math.prod(self.shape) * found.itemsize // width
        return TensorSpec(self.name, str(found).removeprefix("torch."), self.shape, width, words)


def whole(weights: Iterable[tuple[str, object]]) -> Iterator[Piece]:
    """Pieces of weights that are whole, or are put together when they are read (``Deferred``)."""
    for name, weight in weights:
        if not isinstance(weight, Tensor | Deferred):
            raise ValueError(f"weights: `{name}` is a {type(weight).__name__}, not a tensor")
        yield Piece(name, tuple(weight.shape), 0, weight)


def shards(weights: Iterable[tuple[str, object]], rank: int, size: int) -> Iterator[Piece]:
    """The pieces of this one of ``size`` ranks: its rows of what FSDP2 sharded, and of what all of them put
    together when it is read (``Deferred``); all of what every rank has, on rank 0.

    Every rank gives a piece of every tensor, which may be empty. Raises ValueError for a tensor that is
    sharded in another dimension than its first.
    """
    for name, weight in weights:
        if isinstance(weight, Deferred):
            yield _rows(name, weight, rank, size)
            continue
        if not isinstance(weight, Tensor):
            raise ValueError(f"weights: `{name}` is a {type(weight).__name__}, not a tensor")
        if not isinstance(weight, DTensor):
            tensor = weight if rank == 0 else weight.reshape(-1)[:0]
            yield Piece(name, tuple(weight.shape), 0, tensor)
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
        yield Piece(name, tuple(weight.shape), start[0] * row if start and local.numel() else 0, local)


def _rows(name: str, weight: Deferred, rank: int, size: int) -> Piece:
    """A rank's rows of a tensor that all ranks make together."""
    rows = weight.shape[0]
    first, end = rows * rank // size, rows * (rank + 1) // size
    mine = Deferred(torch.Size((end - first, *weight.shape[1:])), lambda d: weight.make(d)[first:end])
    return Piece(name, tuple(weight.shape), first * math.prod(weight.shape[1:]), mine)


def published_dtype(tensor: Tensor | Deferred, dtype: torch.dtype | None) -> torch.dtype:
    """The type in which a weight is published: ``dtype`` for floats, if given, and else its own."""
    if isinstance(tensor, Deferred):
        if dtype is None:
            raise ValueError("weights that exist only when they are made need the type to be published in")
        return dtype
    return dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype


def words_of(tensor: Tensor) -> Words:
    """A tensor's words, sharing its memory. Raises ValueError unless it is contiguous and on the CPU."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError("only contiguous tensors in the memory of the host can be seen as words")
    width = min(tensor.dtype.itemsize, 8)
    flat: Any = tensor.detach().reshape(-1).view(SIGNED[width]).numpy()
    return flat.view(f"<u{width}")


def signed(words: Words) -> Tensor:
    """Words as a tensor of integers, sharing their memory."""
    width = words.dtype.itemsize
    return torch.from_numpy(words.view(f"<i{width}" if width > 1 else "u1"))

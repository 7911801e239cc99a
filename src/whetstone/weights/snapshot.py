"""A version's words in the memory of the host: what later versions are compared with, and copied from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from whetstone.engine.weights import Deferred
from whetstone.weights.codec import Words
from whetstone.weights.manifest import Block, TensorSpec
from whetstone.weights.pieces import Piece, published_dtype, words_of


class _Held(NamedTuple):
    spec: TensorSpec
    start: int
    """The first word of the tensor that is here."""
    tensor: Tensor
    words: Words


class Snapshot:
    """Room for the pieces of one rank, filled again and again; floats are cast to ``dtype``, if given."""

    def __init__(self, pieces: Sequence[Piece], dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._held = [_room(piece, dtype) for piece in pieces]
        self.specs = [held.spec for held in self._held]

    @property
    def extents(self) -> list[tuple[int, int, int]]:
        """(tensor, offset, count) of the words that are here."""
        return [(n, h.start, len(h.words)) for n, h in enumerate(self._held) if len(h.words)]

    @property
    def size(self) -> int:
        """Bytes of the words that are here."""
        return sum(held.words.nbytes for held in self._held)

    def check(self, pieces: Iterable[Piece]) -> None:
        """Raise ValueError unless the pieces are those that the room was made for."""
        for held, piece in zip(self._held, pieces, strict=True):
            spec = piece.spec(self._dtype)
            if spec != held.spec or piece.offset * _words_each(spec) != held.start:
                raise ValueError(f"weights: `{spec.name}` is not what the version before had there")

    def fill(self, pieces: Iterable[Piece]) -> None:
        """Copy the pieces in, which :meth:`check` would take."""
        for held, piece in zip(self._held, pieces, strict=True):
            tensor = piece.tensor
            if isinstance(tensor, Deferred):
                tensor = tensor.make(held.tensor.dtype)
            held.tensor.copy_(tensor.detach().reshape(-1))

    def block(self, block: Block) -> Words:
        """The words of a block that is here."""
        held = self._held[block.tensor]
        start = block.offset - held.start
        return held.words[start : start + block.count]


def _room(piece: Piece, dtype: torch.dtype | None) -> _Held:
    spec = piece.spec(dtype)
    tensor = piece.tensor
    size = tensor.shape.numel()
    room = torch.empty(size, dtype=published_dtype(tensor, dtype))
    return _Held(spec, piece.offset * _words_each(spec), room, words_of(room))


def _words_each(spec: TensorSpec) -> int:
    """Words of an element: 1, except of the largest complex type."""
    return getattr(torch, spec.dtype).itemsize // spec.width

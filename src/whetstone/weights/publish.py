"""A trainer's side: a snapshot between two steps, and while the next one computes, its changes.

One rank of several encodes what it has of the tensors; their shards, told to rank 0 by whatever joins the
ranks, make one manifest there. Each rank serves its own parts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
from msgspec import Struct

from whetstone.weights.codec import encode_delta
from whetstone.weights.manifest import Block, Manifest, Mark, Shard, TensorSpec, cut, digest, make_manifest
from whetstone.weights.pieces import Piece
from whetstone.weights.shelf import Shelf
from whetstone.weights.snapshot import Snapshot


class Encoded(Struct, frozen=True):
    """One rank's part of a version, already on its shelf. ``manifest.packed`` makes bytes of it for rank 0.

    delta: its shard as changes since the version ``base``, None in the first version of all, and where none
    are encoded.
    snapshot_s, encode_s: seconds that the trainer waited, and that the encoding took beside it.
    """

    number: int
    base: int | None
    tensors: list[TensorSpec]
    full: Shard
    delta: Shard | None
    snapshot_s: float
    encode_s: float


class Publisher:
    """Puts versions of one model on a shelf.

    model: what the model is, the same for publisher and replicas. dtype: floats are published in it; None
    for each in its own. threads: that encode beside the trainer. address: where this rank's shelf is served,
    if it is not that of rank 0. deltas: whether changes are encoded, or versions are full copies only.
    """

    def __init__(
        self,
        model: str,
        shelf: Shelf,
        *,
        dtype: torch.dtype | None = torch.bfloat16,
        threads: int = 1,
        address: str = "",
        deltas: bool = True,
    ) -> None:
        self.model, self.shelf = model, shelf
        self._dtype, self._address, self._deltas = dtype, address, deltas
        self._workers = ThreadPoolExecutor(threads, "weights-encode")
        self._first = ThreadPoolExecutor(1, "weights-publish")
        self._previous: tuple[int, Snapshot] | None = None
        self._pending: Future[Encoded] | None = None
        self._announced: Mark | None = None

    def begin(self, number: int, pieces: Iterable[Piece]) -> Future[Encoded]:
        """Take a snapshot now, and encode it in the background. All ranks call this together.

        It waits for the encoding of the version before, so at most one is under way. Raises ValueError when
        numbers do not rise or the tensors are not those of the version before, and what that encoding raised.
        """
        if self._pending is not None:
            self._pending.result()
        if self._previous is not None and number <= self._previous[0]:
            raise ValueError(f"version {number} after version {self._previous[0]}")
        began = time.perf_counter()
        found = list(pieces)
        if self._previous is not None:
            self._previous[1].check(found)
        snapshot = self.shelf.room(lambda: Snapshot(found, self._dtype))
        snapshot.fill(found)
        waited = time.perf_counter() - began
        base = self._previous if self._deltas else None
        self._pending = self._first.submit(self._encode, number, snapshot, base, waited)
        self._previous = (number, snapshot)
        return self._pending

    def announce(self, encoded: Encoded, others: Sequence[Encoded] = ()) -> Manifest:
        """Make a version the newest, of this rank's part and those of the ``others``.

        Called by rank 0, when every rank's encoding has ended and before the next begins. Raises ValueError
        when something is missing.
        """
        ranks = (encoded, *others)
        full = make_manifest(self.model, encoded.number, encoded.tensors, [rank.full for rank in ranks])
        shards = [rank.delta for rank in ranks if rank.delta is not None]
        delta = None
        if self._announced is not None and len(shards) == len(ranks):
            delta = make_manifest(self.model, encoded.number, encoded.tensors, shards, self._announced)
        self.shelf.announce(full, delta)
        self._announced = full.mark
        return delta or full

    def publish(self, number: int, pieces: Iterable[Piece]) -> Future[Manifest]:
        """:meth:`begin` and, as soon as it is encoded, :meth:`announce`: for a trainer of one rank."""
        encoding = self.begin(number, pieces)
        return self._first.submit(lambda: self.announce(encoding.result()))

    def close(self) -> None:
        """End when what is being encoded has been."""
        self._first.shutdown(wait=True)
        self._workers.shutdown(wait=True)

    def _encode(
        self, number: int, snapshot: Snapshot, previous: tuple[int, Snapshot] | None, waited: float
    ) -> Encoded:
        began = time.perf_counter()
        blocks, ends = cut(snapshot.specs, snapshot.extents)
        plain = Shard(blocks, ends)
        encode = partial(_encode_part, new=snapshot, old=previous[1] if previous else None)
        done = list(self._workers.map(encode, map(plain.part, range(len(ends)))))
        full = Shard([block for part in done for block in part[0]], ends, self._address)
        parts = [part[1] for part in done]
        delta = None
        if previous is not None:
            changed, size = sum(part[2] for part in done), sum(map(len, parts))
            delta = Shard(full.blocks, ends, self._address, changed, size)
        self.shelf.put(number, snapshot, full, previous[0] if previous else None, parts)
        took = time.perf_counter() - began
        return Encoded(number, previous[0] if previous else None, snapshot.specs, full, delta, waited, took)


def _encode_part(blocks: list[Block], new: Snapshot, old: Snapshot | None) -> tuple[list[Block], bytes, int]:
    """The blocks of a part with their checksums, its changes, and how many words they are."""
    words = [new.block(block) for block in blocks]
    signed = [Block(b.tensor, b.offset, b.count, digest(w)) for b, w in zip(blocks, words, strict=True)]
    if old is None:
        return signed, b"", 0
    data, changed = encode_delta([old.block(block) for block in blocks], words)
    return signed, data, changed

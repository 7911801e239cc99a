"""Encodes a trainer's versions: a snapshot between two steps, encoded while the next step computes.

Each rank encodes its own part of the tensors. Rank 0 combines the shards of all ranks into one manifest. Each
rank serves its own parts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
from msgspec import Struct

from whetstone.weights.codec import encode_delta
from whetstone.weights.manifest import (
    Manifest,
    Shard,
    TensorBlock,
    TensorSpec,
    VersionId,
    digest,
    make_manifest,
    split_into_blocks,
)
from whetstone.weights.settings import default_threads
from whetstone.weights.shards import TensorShard
from whetstone.weights.snapshot import RankSnapshot
from whetstone.weights.version_store import VersionStore


class EncodedVersion(Struct, frozen=True):
    """One rank's part of a version, already in its store. ``manifest.encode_struct`` makes bytes of it for
    rank 0.

    delta: its shard as changes since the version ``base``; None for the first version, and if only full
    copies are published. snapshot_s, encode_s: seconds that the trainer waited, and seconds of encoding in
    the background.
    """

    number: int
    base: int | None
    tensors: list[TensorSpec]
    full: Shard
    delta: Shard | None
    snapshot_s: float
    encode_s: float


class VersionEncoder:
    """Encodes versions of one model into a store.

    model: the model's name, equal for publisher and replicas. dtype: published type of floats; None keeps
    each type. threads: number of encoding threads; None: ``default_threads()``. address: where this rank's
    store is served, if it differs from rank 0's. deltas: whether to encode changes; otherwise every version
    is a full copy.
    """

    def __init__(
        self,
        model: str,
        store: VersionStore,
        *,
        dtype: torch.dtype | None = torch.bfloat16,
        threads: int | None = None,
        address: str = "",
        deltas: bool = True,
    ) -> None:
        self.model, self.store = model, store
        self._dtype, self._address, self._deltas = dtype, address, deltas
        self._workers = ThreadPoolExecutor(threads or default_threads(), "weights-encode")
        self._publishing = ThreadPoolExecutor(1, "weights-publish")
        self._previous: tuple[int, RankSnapshot] | None = None
        self._pending: Future[EncodedVersion] | None = None
        self._announced: VersionId | None = None

    def begin(self, number: int, pieces: Iterable[TensorShard]) -> Future[EncodedVersion]:
        """Take a snapshot now and encode it in the background. All ranks call this together.

        It first waits for the previous encoding, so at most one is in progress. Raises ValueError if the
        number does not increase or the tensors differ from the previous version's, and any error of the
        previous encoding.
        """
        if self._pending is not None:
            self._pending.result()
        if self._previous is not None and number <= self._previous[0]:
            raise ValueError(f"version {number} after version {self._previous[0]}")
        began = time.perf_counter()
        found = list(pieces)
        if self._previous is not None:
            # A delta has no form for tensors that appear, disappear or change shape.
            self._previous[1].check(found)
        snapshot = self.store.reserve_snapshot(lambda: RankSnapshot(found, self._dtype))
        snapshot.fill(found)
        snapshot_s = time.perf_counter() - began
        base = self._previous if self._deltas else None
        self._pending = self._publishing.submit(self._encode, number, snapshot, base, snapshot_s)
        self._previous = (number, snapshot)
        return self._pending

    def announce(self, encoded: EncodedVersion, others: Sequence[EncodedVersion] = ()) -> Manifest:
        """Make a version the newest, from this rank's part and those of the ``others``.

        Rank 0 calls this after every rank's encoding has ended and before the next begins. Raises ValueError
        if something is missing.
        """
        ranks = (encoded, *others)
        full = make_manifest(self.model, encoded.number, encoded.tensors, [rank.full for rank in ranks])
        shards = [rank.delta for rank in ranks if rank.delta is not None]
        delta = None
        # A delta that lacks the shard of one rank could not be applied.
        if self._announced is not None and len(shards) == len(ranks):
            delta = make_manifest(self.model, encoded.number, encoded.tensors, shards, self._announced)
        self.store.announce(full, delta)
        self._announced = full.version_id
        return delta or full

    def close(self) -> None:
        """Wait for the current encoding, then stop."""
        self._publishing.shutdown(wait=True)
        self._workers.shutdown(wait=True)

    def _encode(
        self, number: int, snapshot: RankSnapshot, previous: tuple[int, RankSnapshot] | None, waited: float
    ) -> EncodedVersion:
        began = time.perf_counter()
        blocks, ends = split_into_blocks(snapshot.specs, snapshot.extents)
        unsigned = Shard(blocks, ends)
        encode = partial(_encode_part, new=snapshot, old=previous[1] if previous else None)
        done = list(self._workers.map(encode, map(unsigned.part, range(len(ends)))))
        full = Shard([block for part in done for block in part[0]], ends, self._address)
        parts = [part[1] for part in done]
        delta = None
        if previous is not None:
            changed, size = sum(part[2] for part in done), sum(map(len, parts))
            delta = Shard(full.blocks, ends, self._address, changed, size)
        self.store.add(number, snapshot, full, previous[0] if previous else None, parts)
        encode_s = time.perf_counter() - began
        return EncodedVersion(
            number, previous[0] if previous else None, snapshot.specs, full, delta, waited, encode_s
        )


def _encode_part(
    blocks: list[TensorBlock], new: RankSnapshot, old: RankSnapshot | None
) -> tuple[list[TensorBlock], bytes, int]:
    """Return the blocks of a part with checksums, the encoded changes, and the number of changed elements."""
    elements = [new.block(block) for block in blocks]
    signed = [
        TensorBlock(b.tensor, b.offset, b.count, digest(w)) for b, w in zip(blocks, elements, strict=True)
    ]
    if old is None:
        return signed, b"", 0
    data, changed = encode_delta([old.block(block) for block in blocks], elements)
    return signed, data, changed

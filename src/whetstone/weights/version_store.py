"""The versions that a publisher keeps in memory for any number of readers, within bounds.

It keeps a full copy of the newest version, and the deltas that led to it while they are at most ``keep`` and
together smaller than a full copy. A full copy that has readers stays until the last reader is done, with the
deltas that follow it. New readers get that copy too, so slow readers never create more copies. If another
copy is needed and ``copies`` are in use, the oldest copy is taken from its readers, which then request a new
plan.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from whetstone.weights.codec import encode_full, raw_head
from whetstone.weights.manifest import Manifest, Shard, TensorBlock, VersionId
from whetstone.weights.shards import RankSnapshot
from whetstone.weights.source import VersionEvicted
from whetstone.weights.streams import Bytes

# Bytes that are copied and sent at a time, so that they are in the CPU cache when they are sent.
_SLICE = 1 << 18


@dataclass(eq=False)
class _FullCopy:
    """A snapshot of a version, and its readers."""

    snapshot: RankSnapshot
    number: int = -1
    shard: Shard | None = None
    readers: set[VersionReading] = field(default_factory=lambda: set[VersionReading]())
    busy: int = 0
    """Readers that are currently encoding or copying elements."""


@dataclass(frozen=True)
class _Delta:
    base: int
    parts: Sequence[bytes]


class VersionStore:
    """See the module docstring. All methods are thread-safe.

    keep: the most deltas. copies: the most full copies in memory, at least 2: the newest version, and the
    next one while it is made.
    """

    def __init__(self, *, keep: int = 16, copies: int = 3) -> None:
        if keep < 1 or copies < 2:
            raise ValueError("keep must be at least 1, and copies at least 2")
        self._keep, self._most_copies = keep, copies
        self._copies: list[_FullCopy] = []
        self._deltas: dict[int, _Delta] = {}
        self._plans: dict[int, tuple[Manifest, Manifest | None]] = {}
        self._newest: _FullCopy | None = None
        self._changed = threading.Condition()
        self._announced = -1

    def reserve_snapshot(self, make: Callable[[], RankSnapshot]) -> RankSnapshot:
        """Return a snapshot without readers, to be filled with the next version."""
        with self._changed:
            # The newest version is the base of the next delta, so its copy is never reused.
            free = [copy for copy in self._copies if copy is not self._newest and not copy.readers]
            if free:
                copy = min(free, key=lambda c: c.number)
                copy.number = -1
                return copy.snapshot
            if len(self._copies) < self._most_copies:
                self._copies.append(_FullCopy(make()))
                return self._copies[-1].snapshot
            oldest = min((c for c in self._copies if c is not self._newest), key=lambda c: c.number)
            oldest.number = -1
            # Its readers get VersionEvicted at their next part, and request a new plan.
            oldest.readers.clear()
            self._changed.wait_for(lambda: not oldest.busy)
            return oldest.snapshot

    def add(
        self, number: int, snapshot: RankSnapshot, shard: Shard, base: int | None, parts: Sequence[bytes]
    ) -> None:
        """Add a version: its copy and, if it has a base, its parts as a delta of ``base``.

        It can be read by number, but is in no plan until :meth:`announce`.
        """
        with self._changed:
            copy = next(copy for copy in self._copies if copy.snapshot is snapshot)
            copy.number, copy.shard = number, shard
            self._newest = copy
            if base is not None:
                self._deltas[number] = _Delta(base, parts)
            self._evict()

    def announce(self, full: Manifest, delta: Manifest | None) -> None:
        """Make this version the newest."""
        with self._changed:
            self._plans[full.number] = (full, delta)
            self._announced = full.number
            self._evict()
            self._changed.notify_all()

    def plan(self, have: VersionId | None, wait_s: float = 0.0) -> list[Manifest]:
        """See ``WeightSource.plan``."""
        until = time.monotonic() + wait_s
        with self._changed:
            while True:
                found = self._plan(have)
                left = until - time.monotonic()
                if found or not left > 0:
                    return found
                self._changed.wait(left)

    def open(self, number: int, base: int | None) -> VersionReading:
        """Start reading a version, in full or as a delta of ``base``. It stays until the reading is closed.

        Raises VersionEvicted.
        """
        with self._changed:
            if base is None:
                copy = next((c for c in self._copies if c.number == number), None)
                # The plan may be older than the last eviction. The reader then requests a new plan.
                if copy is None:
                    raise VersionEvicted(f"version {number} is no longer kept in full")
                reading = VersionReading(self, copy, None)
                copy.readers.add(reading)
                return reading
            delta = self._deltas.get(number)
            if delta is None or delta.base != base:
                raise VersionEvicted(f"the changes from version {base} to {number} are no longer kept")
            return VersionReading(self, None, delta)

    @property
    def kept_counts(self) -> tuple[int, int]:
        """The number of full copies and deltas that are kept."""
        with self._changed:
            return len(self._copies), len(self._deltas)

    def _plan(self, have: VersionId | None) -> list[Manifest]:
        if self._announced < 0:
            return []
        newest = self._plans[self._announced][0]
        if have == newest.version_id:
            return []
        chain = self._chain(have) if have else None
        if chain is not None:
            return chain
        # Prefer a copy that already has readers, with the deltas after it: no further copy must be kept.
        for copy in sorted(self._copies, key=lambda c: c.number):
            if copy.readers and copy.number in self._plans:
                full = self._plans[copy.number][0]
                onward = self._chain(full.version_id)
                if onward is not None:
                    return [full, *onward]
        return [newest]

    def _chain(self, have: VersionId) -> list[Manifest] | None:
        """Return the deltas from ``have`` to the newest version if all are available, else None."""
        chain: list[Manifest] = []
        wanted = self._announced
        # The reader has another run's version of the same number.
        if wanted == have.number and self._plans[wanted][0].version_id != have:
            return None
        while wanted != have.number:
            delta = self._plans[wanted][1] if wanted in self._plans else None
            if delta is None or delta.base is None or wanted not in self._deltas:
                return None
            chain.append(delta)
            wanted = delta.base.number
        if chain and chain[-1].base != have:
            return None
        return chain[::-1]

    def _evict(self) -> None:
        """Remove deltas that are too many or too large, and manifests of versions that are gone."""
        assert self._newest is not None
        # A chain of deltas that is larger than a full copy has no use.
        most_bytes = self._newest.snapshot.size
        sizes = {n: sum(map(len, delta.parts)) for n, delta in self._deltas.items()}
        while len(sizes) > self._keep or (len(sizes) > 1 and sum(sizes.values()) > most_bytes):
            oldest = min(sizes)
            del sizes[oldest], self._deltas[oldest]
        here = self._deltas.keys() | {copy.number for copy in self._copies} | {self._announced}
        self._plans = {n: plan for n, plan in self._plans.items() if n in here}

    def _part(self, reading: VersionReading, copy: _FullCopy, part: int) -> bytes:
        with self._unchanged(reading, copy, part) as blocks:
            return encode_full([copy.snapshot.block(block) for block in blocks])

    def _raw_part(self, reading: VersionReading, copy: _FullCopy, part: int) -> tuple[int, Iterator[Bytes]]:
        with self._unchanged(reading, copy, part) as blocks:
            elements = [copy.snapshot.block(block) for block in blocks]
        head = raw_head(elements[0].dtype.itemsize)

        def pieces() -> Iterator[Bytes]:
            yield head
            room = np.empty(_SLICE, np.uint8)
            for block in elements:
                data = block.view(np.uint8)
                for start in range(0, len(data), _SLICE):
                    piece = room[: len(data) - start]
                    # Not during the sending: a slow reader must not delay the trainer.
                    with self._unchanged(reading, copy, part):
                        piece[:] = data[start : start + _SLICE]
                    yield piece.data

        return len(head) + sum(block.nbytes for block in elements), pieces()

    @contextmanager
    def _unchanged(self, reading: VersionReading, copy: _FullCopy, part: int) -> Generator[list[TensorBlock]]:
        """A context in which the elements of a copy stay as they are, with the blocks of a part."""
        with self._changed:
            if reading not in copy.readers or copy.shard is None:
                raise VersionEvicted(f"version {copy.number} is no longer kept in full")
            blocks = copy.shard.part(part)
            # Their elements are read without the lock, so that readers do not wait for each other.
            copy.busy += 1
        try:
            yield blocks
        finally:
            with self._changed:
                copy.busy -= 1
                self._changed.notify_all()

    def _release(self, reading: VersionReading, copy: _FullCopy) -> None:
        with self._changed:
            copy.readers.discard(reading)


class VersionReading:
    """A reader's access to a version; created by :meth:`VersionStore.open`."""

    def __init__(self, store: VersionStore, copy: _FullCopy | None, delta: _Delta | None) -> None:
        self._store, self._copy, self._delta = store, copy, delta

    def part(self, index: int) -> bytes:
        """Return the bytes of a part. Raises VersionEvicted if the version was evicted or has no such
        part."""
        try:
            if index < 0:
                raise IndexError
            if self._delta is not None:
                return self._delta.parts[index]
            assert self._copy is not None
            return self._store._part(self, self._copy, index)  # pyright: ignore[reportPrivateUsage]
        except IndexError:
            raise VersionEvicted(f"there is no part {index}") from None

    def raw_part(self, index: int) -> tuple[int, Iterator[Bytes]]:
        """Return the size of a raw part of a full version, and its bytes in pieces, each valid until the
        next. Raises VersionEvicted, also between two pieces."""
        assert self._copy is not None
        try:
            if index < 0:
                raise IndexError
            return self._store._raw_part(self, self._copy, index)  # pyright: ignore[reportPrivateUsage]
        except IndexError:
            raise VersionEvicted(f"there is no part {index}") from None

    def close(self) -> None:
        """Release the version."""
        if self._copy is not None:
            self._store._release(self, self._copy)  # pyright: ignore[reportPrivateUsage]

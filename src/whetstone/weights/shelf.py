"""The versions that a publisher keeps in memory, for as many readers as there are, within bounds.

Kept are one full copy, that of the newest version, and the deltas that led there: as long as they are
fewer than ``keep`` and together smaller than a full copy, which is then the shorter way. A full copy that
somebody reads stays until the last of them is done, with the deltas that lead on from it; newcomers are sent
to it too, so that slow readers never make more of them. Only when room for another copy is needed and
``copies`` are in use, it is taken from the readers of the oldest, who then ask anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whetstone.weights.codec import encode_full
from whetstone.weights.manifest import Manifest, Mark, Shard
from whetstone.weights.snapshot import Snapshot
from whetstone.weights.source import Gone


@dataclass(eq=False)
class _Copy:
    """A snapshot of a version, and who reads it."""

    snapshot: Snapshot
    number: int = -1
    shard: Shard | None = None
    readers: set[Reading] = field(default_factory=lambda: set[Reading]())
    busy: int = 0
    """Readers that are in the middle of a part."""


@dataclass(frozen=True)
class _Delta:
    base: int
    parts: Sequence[bytes]


class Shelf:
    """See the module's text. Any thread may call anything.

    keep: deltas at most. copies: full copies in memory at most, at least 2: the newest, and the one that
    is being made of the next version.
    """

    def __init__(self, *, keep: int = 16, copies: int = 3) -> None:
        if keep < 1 or copies < 2:
            raise ValueError("a shelf keeps at least one delta, and room for two copies")
        self._keep, self._most_copies = keep, copies
        self._copies: list[_Copy] = []
        self._deltas: dict[int, _Delta] = {}
        self._plans: dict[int, tuple[Manifest, Manifest | None]] = {}
        self._newest: _Copy | None = None
        self._changed = threading.Condition()
        self._announced = -1

    def room(self, make: Callable[[], Snapshot]) -> Snapshot:
        """A snapshot that nobody reads, to be filled with the next version."""
        with self._changed:
            free = [copy for copy in self._copies if copy is not self._newest and not copy.readers]
            if free:
                copy = min(free, key=lambda c: c.number)
                copy.number = -1
                return copy.snapshot
            if len(self._copies) < self._most_copies:
                self._copies.append(_Copy(make()))
                return self._copies[-1].snapshot
            oldest = min((c for c in self._copies if c is not self._newest), key=lambda c: c.number)
            oldest.number = -1
            oldest.readers.clear()
            self._changed.wait_for(lambda: not oldest.busy)
            return oldest.snapshot

    def put(
        self, number: int, snapshot: Snapshot, shard: Shard, base: int | None, parts: Sequence[bytes]
    ) -> None:
        """Put a version here: its copy, and its parts as a delta of the version ``base``, if it has one.

        It can be read by its number, but is in no plan until :meth:`announce`.
        """
        with self._changed:
            copy = next(copy for copy in self._copies if copy.snapshot is snapshot)
            copy.number, copy.shard = number, shard
            self._newest = copy
            if base is not None:
                self._deltas[number] = _Delta(base, parts)
            self._forget()

    def announce(self, full: Manifest, delta: Manifest | None) -> None:
        """From now on this version is the newest."""
        with self._changed:
            self._plans[full.number] = (full, delta)
            self._announced = full.number
            self._forget()
            self._changed.notify_all()

    def plan(self, have: Mark | None, wait_s: float = 0.0) -> list[Manifest]:
        """See ``Source.plan``."""
        until = time.monotonic() + wait_s
        with self._changed:
            while True:
                found = self._plan(have)
                left = until - time.monotonic()
                if found or left <= 0:
                    return found
                self._changed.wait(left)

    def open(self, number: int, base: int | None) -> Reading:
        """Begin to read a version, full or as a delta of ``base``; it stays until the reading is closed.

        Raises Gone.
        """
        with self._changed:
            if base is None:
                copy = next((c for c in self._copies if c.number == number), None)
                if copy is None:
                    raise Gone(f"version {number} is no longer kept in full")
                reading = Reading(self, copy, None)
                copy.readers.add(reading)
                return reading
            delta = self._deltas.get(number)
            if delta is None or delta.base != base:
                raise Gone(f"the changes from version {base} to {number} are no longer kept")
            return Reading(self, None, delta)

    @property
    def memory(self) -> tuple[int, int]:
        """Full copies and deltas that are kept."""
        with self._changed:
            return len(self._copies), len(self._deltas)

    def _plan(self, have: Mark | None) -> list[Manifest]:
        if self._announced < 0:
            return []
        newest = self._plans[self._announced][0]
        if have == newest.mark:
            return []
        chain = self._chain(have) if have else None
        if chain is not None:
            return chain
        # A copy that is being read anyway, with what leads on from it.
        for copy in sorted(self._copies, key=lambda c: c.number):
            if copy.readers and copy.number in self._plans:
                full = self._plans[copy.number][0]
                onward = self._chain(full.mark)
                if onward is not None:
                    return [full, *onward]
        return [newest]

    def _chain(self, have: Mark) -> list[Manifest] | None:
        """The deltas from ``have`` to the newest version, if they are all here."""
        chain: list[Manifest] = []
        wanted = self._announced
        if wanted == have.number and self._plans[wanted][0].mark != have:
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

    def _forget(self) -> None:
        """Drop the deltas that are too many or too large, and the manifests that nothing is left of."""
        assert self._newest is not None
        most_bytes = self._newest.snapshot.size
        sizes = {n: sum(map(len, delta.parts)) for n, delta in self._deltas.items()}
        while len(sizes) > self._keep or (len(sizes) > 1 and sum(sizes.values()) > most_bytes):
            oldest = min(sizes)
            del sizes[oldest], self._deltas[oldest]
        here = self._deltas.keys() | {copy.number for copy in self._copies} | {self._announced}
        self._plans = {n: plan for n, plan in self._plans.items() if n in here}

    def _part(self, reading: Reading, copy: _Copy, part: int) -> bytes:
        with self._changed:
            if reading not in copy.readers or copy.shard is None:
                raise Gone(f"version {copy.number} is no longer kept in full")
            blocks = copy.shard.part(part)
            copy.busy += 1
        try:
            return encode_full([copy.snapshot.block(block) for block in blocks])
        finally:
            with self._changed:
                copy.busy -= 1
                self._changed.notify_all()

    def _done(self, reading: Reading, copy: _Copy) -> None:
        with self._changed:
            copy.readers.discard(reading)


class Reading:
    """One reader's hold on a version; :meth:`Shelf.open` makes it."""

    def __init__(self, shelf: Shelf, copy: _Copy | None, delta: _Delta | None) -> None:
        self._shelf, self._copy, self._delta = shelf, copy, delta

    def part(self, index: int) -> bytes:
        """The bytes of a part. Raises Gone when the version was taken away, or has no such part."""
        try:
            if index < 0:
                raise IndexError
            if self._delta is not None:
                return self._delta.parts[index]
            assert self._copy is not None
            return self._shelf._part(self, self._copy, index)  # pyright: ignore[reportPrivateUsage]
        except IndexError:
            raise Gone(f"there is no part {index}") from None

    def close(self) -> None:
        """Let go of the version."""
        if self._copy is not None:
            self._shelf._done(self, self._copy)  # pyright: ignore[reportPrivateUsage]

"""Measures the memory of a run's processes with shared pages counted once, in a background thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Set

from whetstone.sandbox.process_table import MemoryShare, ProcessTable, TreeUsage

_EQUAL_WITHIN_BYTES = 1 << 20


class Proportional:
    """One proportional reading of a run's memory. No other reading waits for it.

    The kernel makes the reader of a process wait while that process forks. With many processes, the fork may
    take long. Meanwhile the other limits are enforced.
    """

    def __init__(self, table: ProcessTable, before: TreeUsage) -> None:
        """Begin. ``before`` is the current usage: its ``resident_bytes`` are assumed for unreadable
        processes."""
        self._table = table
        self._before = before
        self._unseen = 0
        self._parts: dict[str, MemoryShare] = {}
        self._then: TreeUsage | None = None
        self._ended = 0.0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for pid in self._table.pids():
            if (part := self._table.memory_share(pid)) is None:
                self._unseen = self._before.resident_bytes
                return
            if part.bytes:
                self._parts[pid] = part
        then = self._table.usage()
        self._ended = time.monotonic()
        self._then = then

    @property
    def done(self) -> bool:
        """Whether all processes were read."""
        return not self._thread.is_alive()

    def torn_bytes(self, now: TreeUsage) -> int | None:
        """Return the sum of a reading in which a process ended after it was read; None otherwise."""
        parts = self._parts.copy()
        if self._then is None or not _torn(parts, self._then):
            return None
        return _sum(parts, self._read_with_parent(parts, now)).bytes

    def _read_with_parent(self, parts: Mapping[str, MemoryShare], now: TreeUsage) -> set[str]:
        """Return the processes whose memory was also read as their parent's.

        A child of vfork has its parent's memory until it executes. Both readings then show the same memory.
        If one of them has ended or executed since, this cannot be decided any more. Then the memory that was
        read is not held any more either.
        """
        parents = {pid: part.parent for pid, part in parts.items() if part.parent in parts}
        candidates = {
            pid: parent
            for pid, parent in parents.items()
            if abs(parts[parent].bytes - parts[pid].bytes) <= _EQUAL_WITHIN_BYTES
        }
        found = {pid for pid in candidates if not _still_holds(now, pid, parts[pid])}
        if unclear := {pid: parent for pid, parent in candidates.items() if pid not in found}:
            found |= self._table.sharing_with_parents(unclear)
            later = self._table.usage()
            found |= {pid for pid in unclear if not _still_holds(later, pid, parts[pid])}
        return found

    def bytes(self, now: TreeUsage, enough: int | None = None) -> int:
        """Return a lower bound of the memory of the processes that were read, including their growth since.

        If it exceeds ``enough``, memory that a child has from its parent is found, which takes milliseconds,
        and counts once.
        """
        if self._unseen:
            return self._unseen
        then, parts = self._then, self._parts.copy()  # the thread adds more at the same time
        torn, grown = _torn(parts, then or now), 0
        # An older reading may have seen a child with the memory of a parent that has executed since.
        if then is not None and now.began >= self._ended and then.holders == now.holders:
            grown = max(now.private_bytes - then.private_bytes, 0)
        found = _sum(parts)
        if enough is not None and (found.alone if torn else found.bytes + grown) > enough:
            found = _sum(parts, self._read_with_parent(parts, now))
        return found.alone if torn else found.bytes + grown

    def most_bytes(self, now: TreeUsage) -> int | None:
        """Return an upper bound of the memory; None if the reading is torn or still runs."""
        if self._then is None or _torn(self._parts, self._then):
            return None
        return _sum(self._parts).bytes + now.grown_bytes(self._before)

    def wait(self, most_s: float | None = None) -> None:
        """Wait until it is done, at most ``most_s``. It is soon done if the processes have ended."""
        self._thread.join(most_s)


def _torn(parts: Mapping[str, MemoryShare], later: TreeUsage) -> bool:
    """Return whether a process ended during the reading, so that its part of shared pages counted twice."""
    return not parts.keys() <= later.holders


def _sum(parts: Mapping[str, MemoryShare], without: Set[str] = frozenset()) -> MemoryShare:
    counted = [part for pid, part in parts.items() if pid not in without]
    return MemoryShare(sum(part.bytes for part in counted), sum(part.alone for part in counted))


def _still_holds(usage: TreeUsage, pid: str, part: MemoryShare) -> bool:
    process = usage.processes.get(pid)
    return process is not None and process.held_bytes + process.files_bytes > part.bytes // 2

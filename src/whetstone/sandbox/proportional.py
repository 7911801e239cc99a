"""What the processes of a run hold together when pages that they share count once, read beside all else."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Set

from whetstone.sandbox.process_table import Part, ProcessTable, TreeUsage

_ALIKE_BYTES = 1 << 20


class Proportional:
    """One reading of what a run's processes hold, shared pages once, for which nobody waits.

    The kernel makes the reader of a process wait while that one forks, and among many it may be long before
    it gets a core to end that. Meanwhile the other limits are looked at.
    """

    def __init__(self, table: ProcessTable, before: TreeUsage) -> None:
        """Begin, with what they use now: its ``resident_bytes`` are assumed where we may not look."""
        self._table = table
        self._before = before
        self._unseen = 0
        self._parts: dict[str, Part] = {}
        self._then: TreeUsage | None = None
        self._ended = 0.0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for pid in self._table.pids():
            if (part := self._table.part(pid)) is None:
                self._unseen = self._before.resident_bytes
                return
            if part.bytes:
                self._parts[pid] = part
        then = self._table.usage()
        self._ended = time.monotonic()
        self._then = then

    @property
    def done(self) -> bool:
        """Whether all were read."""
        return not self._thread.is_alive()

    def torn_bytes(self, now: TreeUsage) -> int | None:
        """The sum of a reading in which one ended that had been read; None if it was none, or goes on."""
        parts = self._parts.copy()
        if self._then is None or not _torn(parts, self._then):
            return None
        return _sum(parts, self._of_parents(parts, now)).bytes

    def _of_parents(self, parts: Mapping[str, Part], now: TreeUsage) -> set[str]:
        """Those of whom the memory of their parent was read, which a child has until it executes (vfork).

        Then both were read to hold the same. Where one has ended or executed since, nobody can say any more;
        what was read of it is held no more either.
        """
        parents = {pid: part.parent for pid, part in parts.items() if part.parent in parts}
        alike = {
            pid: parent
            for pid, parent in parents.items()
            if abs(parts[parent].bytes - parts[pid].bytes) <= _ALIKE_BYTES
        }
        found = {pid for pid in alike if not _still_holds(now, pid, parts[pid])}
        if asked := {pid: parent for pid, parent in alike.items() if pid not in found}:
            found |= self._table.sharing(asked)
            later = self._table.usage()
            found |= {pid for pid in asked if not _still_holds(later, pid, parts[pid])}
        return found

    def bytes(self, now: TreeUsage, enough: int | None = None) -> int:
        """What they hold at least: of those that were read, with what the same processes have made since.

        Where that is more than ``enough``, the memory that one has from its parent is looked for, which takes
        milliseconds, and counts once.
        """
        if self._unseen:
            return self._unseen
        then, parts = self._then, self._parts.copy()  # more are read meanwhile
        torn, grown = _torn(parts, then or now), 0
        # An older look may have seen a child with the memory of its parent, which has executed since.
        if then is not None and now.began >= self._ended and then.holders == now.holders:
            grown = max(now.private_bytes - then.private_bytes, 0)
        found = _sum(parts)
        if enough is not None and (found.alone if torn else found.bytes + grown) > enough:
            found = _sum(parts, self._of_parents(parts, now))
        return found.alone if torn else found.bytes + grown

    def most_bytes(self, now: TreeUsage) -> int | None:
        """What they hold at most; None where the reading is torn, or goes on."""
        if self._then is None or _torn(self._parts, self._then):
            return None
        return _sum(self._parts).bytes + now.grown_bytes(self._before)

    def wait(self, most_s: float | None = None) -> None:
        """Until it is done, which is soon where the processes have ended; or at most so long."""
        self._thread.join(most_s)


def _torn(parts: Mapping[str, Part], later: TreeUsage) -> bool:
    """Whether one ended meanwhile: its part of what it shared fell to others, and counted twice."""
    return not parts.keys() <= later.holders


def _sum(parts: Mapping[str, Part], without: Set[str] = frozenset()) -> Part:
    counted = [part for pid, part in parts.items() if pid not in without]
    return Part(sum(part.bytes for part in counted), sum(part.alone for part in counted))


def _still_holds(usage: TreeUsage, pid: str, part: Part) -> bool:
    process = usage.processes.get(pid)
    return process is not None and process.held_bytes + process.files_bytes > part.bytes // 2

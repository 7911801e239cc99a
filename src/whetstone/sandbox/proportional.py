"""What the processes of a run hold together when pages that they share count once, read beside all else."""

from __future__ import annotations

import threading

from whetstone.sandbox.process_table import Part, ProcessTable, TreeUsage


class Proportional:
    """One reading of what a run's processes hold, shared pages once, for which nobody waits.

    The kernel makes the reader of a process wait while that one forks, and among many it may be long before
    it gets a core to end that. Meanwhile the other limits are looked at.
    """

    def __init__(self, table: ProcessTable, before: TreeUsage) -> None:
        """Begin, with what they use now: its ``resident_bytes`` are assumed where we may not look."""
        self._before = before
        self._sum = Part(0, 0)
        self._holders = frozenset[str]()
        self._then: TreeUsage | None = None
        self._thread = threading.Thread(target=self._read, args=(table,), daemon=True)
        self._thread.start()

    def _read(self, table: ProcessTable) -> None:
        for pid in table.pids():
            if (part := table.part(pid)) is None:
                self._holders = frozenset()
                self._sum = Part(self._before.resident_bytes, self._before.resident_bytes)
                return
            if part.bytes:
                self._holders |= {pid}  # first, so that whoever looks meanwhile takes too many for too few
                self._sum = Part(self._sum.bytes + part.bytes, self._sum.alone + part.alone)
        self._then = table.usage()

    @property
    def done(self) -> bool:
        """Whether all were read."""
        return not self._thread.is_alive()

    @property
    def torn_bytes(self) -> int | None:
        """The sum of a reading in which one ended that had been read; None if it was none, or goes on."""
        return self._sum.bytes if self._then is not None and self._torn(self._then) else None

    def _torn(self, later: TreeUsage) -> bool:
        """Whether one ended meanwhile: its part of what it shared fell to others, and counted twice."""
        return not self._holders <= later.holders

    def bytes(self, now: TreeUsage) -> int:
        """What they hold at least: of those that were read, with what the same processes have made since."""
        if self._torn(self._then or now):
            return self._sum.alone
        if self._then is None or self._then.holders != now.holders:
            return self._sum.bytes
        return self._sum.bytes + max(now.private_bytes - self._then.private_bytes, 0)

    def most_bytes(self, now: TreeUsage) -> int | None:
        """What they hold at most; None where the reading is torn, or goes on."""
        if self._then is None or self._torn(self._then):
            return None
        return self._sum.bytes + now.grown_bytes(self._before)

    def wait(self, most_s: float | None = None) -> None:
        """Until it is done, which is soon where the processes have ended; or at most so long."""
        self._thread.join(most_s)

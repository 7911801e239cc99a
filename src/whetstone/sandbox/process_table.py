"""The processes of a run, read through a /proc. So trees are measured where no control group does it.

A fork-server in a pid namespace hands out that namespace's own when it starts: nobody else is in there, and
no pid of it can belong to a stranger. Without namespaces it is the machine's, and a run is a process group,
which its processes cannot leave.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import dataclass
from typing import NamedTuple

from whetstone.sandbox.starvation import Waited, preempted

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FIRST = "1"  # the fork-server itself
_COUNTED = (b"RssAnon:", b"RssShmem:", b"VmSwap:", b"VmPTE:")
SHARED_WITHOUT_FILE = b" /dev/zero (deleted)"
"""What the kernel calls memory that processes share by descent: in ``/proc/PID/maps``."""


@dataclass(frozen=True)
class TreeUsage:
    """What a run's processes use together: those that run, and those that ended and were not waited for."""

    cpu_s: float
    """Also of the processes that these have waited for."""
    resident_bytes: int
    """Pages of libraries once; memory that processes share as often as they share it."""
    largest_bytes: int
    """What the one that holds most has in its tables: all of them together hold at least that."""
    tasks: int
    """All of them, with their threads."""
    private_bytes: int
    """Memory without files, as often as it is shared."""
    holders: frozenset[str]
    """The processes that hold memory: those that have not ended."""
    faulted_bytes: int
    """All pages that they were ever given, in bytes."""


class Part(NamedTuple):
    """What one process, or several, hold."""

    bytes: int
    """Of what it shares its part."""
    alone: int
    """Only what it shares with no other."""


class ProcessTable:
    """The processes of a fork-server's run."""

    def __init__(self, fd: int, *, shared: bool = False) -> None:
        """``fd`` is the open directory; ``close`` gives it back.

        With ``shared`` there are others in it, and ``of_run`` says which processes are meant.
        """
        self._fd = fd
        self._shared = shared
        self._group = b""

    def of_run(self, pid: int) -> None:
        """A run begins whose first process is ``pid``, which leads a process group."""
        self._group = b"%d" % pid

    def pids(self) -> list[str]:
        """The processes of the run, by their numbers in this table."""
        try:
            names = [name for name in os.listdir(self._fd) if name.isdigit() and name != _FIRST]
        except OSError:
            return []  # the namespace has ended
        if not self._shared:
            return names
        return [name for name in names if self._stat(name)[2:3] == [self._group]]

    def usage(self) -> TreeUsage:
        """What all processes of the run use now."""
        cpu_s, memory, largest, private, files, tasks, faulted = 0.0, 0, 0, 0, 0, 0, 0
        holders: set[str] = set()
        for pid in self.pids():
            fields = self._stat(pid)
            if len(fields) < 18:
                continue  # it ended just now, and was waited for
            user, system, user_of_dead, system_of_dead = map(int, fields[11:15])
            threads = int(fields[17])
            # Ticks are coarse; the scheduler's own figures are exact, but leave out threads that have ended.
            exact_s = self._on_cpu_s(pid) if threads == 1 else self._threads_s(pid)
            cpu_s += (
                max(exact_s, (user + system) / _TICKS_PER_S) + (user_of_dead + system_of_dead) / _TICKS_PER_S
            )
            tasks += threads
            faulted += faulted_bytes(fields)
            status = self._read(pid, "status")
            if b"VmRSS:" in status:
                holders.add(pid)
            private += kibibytes(status, b"RssAnon:")
            held = sum(kibibytes(status, name) for name in _COUNTED)
            memory, largest = memory + held, max(largest, held)
            files = max(files, kibibytes(status, b"RssFile:"))
        resident = (memory + files) << 10
        return TreeUsage(cpu_s, resident, largest << 10, tasks, private << 10, frozenset(holders), faulted)

    def _threads_s(self, pid: str) -> float:
        try:
            fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return 0.0
        try:
            return sum(self._on_cpu_s(f"{pid}/task/{thread}") for thread in os.listdir(fd))
        except OSError:
            return 0.0
        finally:
            os.close(fd)

    def _on_cpu_s(self, path: str) -> float:
        """CPU seconds of one thread, to the nanosecond."""
        figures = self._read(path, "schedstat").split()
        return int(figures[0]) / 1e9 if figures else 0.0

    def ready(self) -> list[str]:
        """Those that have, or wait for, a core."""
        return [pid for pid in self.pids() if self._stat(pid)[:1] == [b"R"]]

    def computes(self, pids: list[str]) -> bool:
        """Whether one of them computes, rather than sleeps again and again."""
        return any(preempted(self._read(pid, "status")) for pid in pids)

    def waited(self) -> Waited:
        """How long the first thread of the process that waited longest for a core did so."""
        longest = Waited(0.0, False)
        for pid in self.pids():
            figures = self._read(pid, "schedstat").split()
            if len(figures) > 1 and int(figures[1]) / 1e9 > longest.seconds:
                longest = Waited(int(figures[1]) / 1e9, preempted(self._read(pid, "status")))
        return longest

    def shares_memory(self) -> bool:
        """Whether one has memory without a file that stays although no process has it in sight."""
        return any(self._has_shared(pid) for pid in self.pids())

    def _has_shared(self, pid: str) -> bool:
        try:
            fd = os.open(f"{pid}/maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
            with open(fd, "rb") as file:
                return SHARED_WITHOUT_FILE in file.read()
        except OSError:
            return False  # it has ended

    def part(self, pid: str) -> Part | None:
        """Resident and swapped memory of a process; None where we may not look."""
        if text := self._read(pid, "smaps_rollup"):
            tables = kibibytes(self._read(pid, "status"), b"VmPTE:")
            alone = sum(kibibytes(text, name) for name in (b"\nPrivate_Clean:", b"\nPrivate_Dirty:"))
            shared_too = kibibytes(text, b"\nPss:") + kibibytes(text, b"\nSwapPss:")
            return Part((shared_too + tables) << 10, (alone + tables) << 10)
        return None if b"VmRSS:" in self._read(pid, "status") else Part(0, 0)  # it has ended

    def kill_all(self) -> None:
        """Send SIGKILL to every process of the run, and to those that these start meanwhile."""
        killed: set[str] = set()
        while more := set(self.pids()) - killed:
            killed |= more
            for pid in more:
                with contextlib.suppress(OSError):  # it has ended, which is as good
                    self._kill(pid)

    def _kill(self, pid: str) -> None:
        # The directory of a process serves as its pidfd: a number that is reused meanwhile is not hit.
        fd = os.open(pid, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)

    def _stat(self, pid: str) -> list[bytes]:
        """What ``stat`` says, from the state on: then parent, process group, and so forth."""
        return self._read(pid, "stat").rpartition(b")")[2].split()

    def _read(self, pid: str, name: str) -> bytes:
        try:
            fd = os.open(f"{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return b""
        try:
            return os.read(fd, 8192)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)


class Proportional:
    """One reading of what a run's processes hold, shared pages once, for which nobody waits.

    The kernel makes the reader of a process wait while that one forks, and among many it may be long before
    it gets a core to end that. Meanwhile the other limits are looked at.
    """

    def __init__(self, table: ProcessTable, otherwise: int) -> None:
        """Begin. ``otherwise``: the bytes to assume where we may not look."""
        self._otherwise = otherwise
        self._sum = Part(0, 0)
        self._holders = frozenset[str]()
        self._then: TreeUsage | None = None
        self._thread = threading.Thread(target=self._read, args=(table,), daemon=True)
        self._thread.start()

    def _read(self, table: ProcessTable) -> None:
        for pid in table.pids():
            if (part := table.part(pid)) is None:
                self._holders = frozenset()
                self._sum = Part(self._otherwise, self._otherwise)
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

    def wait(self, most_s: float | None = None) -> None:
        """Until it is done, which is soon where the processes have ended; or at most so long."""
        self._thread.join(most_s)


def faulted_bytes(fields: list[bytes]) -> int:
    """Pages that a process was ever given, and the children that it has waited for, in bytes; from the fields
    of its ``stat`` from the state on."""
    return sum(map(int, fields[7:11])) * _PAGE


def kibibytes(text: bytes, name: bytes) -> int:
    """The number after ``name`` in a file like ``/proc/PID/status``; 0 where it is missing."""
    at = text.find(name)
    return int(text[at + len(name) :].split(None, 1)[0]) if at >= 0 else 0

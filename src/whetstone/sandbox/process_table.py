"""The processes of a run, read through a /proc. So trees are measured where no control group does it.

A fork-server in a pid namespace hands out that namespace's own when it starts: nobody else is in there, and
no pid of it can belong to a stranger. Without namespaces it is the machine's, and a run is a process group,
which its processes cannot leave.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from whetstone.sandbox.same_memory import in_our_numbers, share_memory
from whetstone.sandbox.starvation import Held, Waited, preempted

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FIRST = "1"  # the fork-server itself
_COUNTED = (b"\nRssAnon:", b"\nRssShmem:", b"\nVmSwap:", b"\nVmPTE:", b"\nRssFile:")
RUNNING, STALLED = b"R", b"D"
"""States in ``stat`` of a process: it has or waits for a core; it sleeps in the kernel, deaf to signals."""
SHARED_WITHOUT_FILE = b" /dev/zero (deleted)"
"""What the kernel calls memory that processes share by descent: in ``/proc/PID/maps``."""


class Process(NamedTuple):
    """One process as it was when it last ran: until it runs again, it uses nothing and lets go of nothing."""

    parent: str
    """Its number in the same table."""
    ran: bytes
    """What the kernel says of how long it ran, by which it is seen to have run again."""
    cpu_s: float
    """Also of the processes that it has waited for."""
    tasks: int
    faulted_bytes: int
    """All pages that it was ever given, and the children that it has waited for, in bytes."""
    private_bytes: int
    held_bytes: int
    """Memory without files, swapped or not, and tables of pages."""
    tables_bytes: int
    """Tables of pages alone, which it shares with no other."""
    files_bytes: int
    holds: bool
    """It has not ended."""
    ready: bool
    """It has, or waits for, a core."""
    computes: bool
    """It does not just sleep again and again."""


@dataclass(frozen=True)
class TreeUsage:
    """What a run's processes use together: those that run, and those that ended and were not waited for."""

    cpu_s: float
    """Also of the processes that these have waited for."""
    resident_bytes: int
    """Pages of libraries once; memory that processes share as often as they share it."""
    least_bytes: int
    """What all hold at least: the tables of each, and what the one has in them that has most."""
    tasks: int
    """All of them, with their threads."""
    private_bytes: int
    """Memory without files, as often as it is shared."""
    holders: frozenset[str]
    """The processes that hold memory: those that have not ended."""
    faulted_bytes: int
    """All pages that they were ever given, in bytes."""
    processes: Mapping[str, Process]
    """Each of them, by its number."""
    began: float
    """When the first of them was looked at, by the monotonic clock."""

    def grown_bytes(self, since: TreeUsage) -> int:
        """How much more they can hold than at another time: every page that was given out, nothing let go.

        A page is given out by one fault, or else counted as memory of the process at once (huge pages). Of
        one that was not there then, all might be its own.
        """
        grown = 0
        for pid, now in self.processes.items():
            if (then := since.processes.get(pid)) is None:
                grown += now.held_bytes
            else:
                more = now.faulted_bytes - then.faulted_bytes, now.held_bytes - then.held_bytes
                grown += max(*more, 0)
        return grown


class Part(NamedTuple):
    """What one process, or several, hold."""

    bytes: int
    """Of what it shares its part."""
    alone: int
    """Only what it shares with no other."""
    parent: str = ""
    """Its number; of one process."""


class ProcessTable:
    """The processes of a fork-server's run."""

    def __init__(self, fd: int, *, shared: bool = False) -> None:
        """``fd`` is the open directory; ``close`` gives it back.

        With ``shared`` there are others in it, and ``of_run`` says which processes are meant.
        """
        self._fd = fd
        self._shared = shared
        self._first = -1
        self._known: dict[str, Process] = {}

    @property
    def is_own(self) -> bool:
        """Whether nobody but the run's processes is in it, so that none need be known to tell them."""
        return not self._shared

    def of_run(self, pid: int) -> None:
        """A run begins whose first process is ``pid``, which leads a process group."""
        self._first = pid
        self._known = {}

    def pids(self) -> list[str]:
        """The processes of the run, by their numbers in this table."""
        try:
            names = [name for name in os.listdir(self._fd) if name.isdigit() and name != _FIRST]
        except OSError:
            return []  # the namespace has ended
        if not self._shared:
            return names
        group = b"%d" % self._first
        return [name for name in names if self._stat(name)[2:3] == [group]]

    def usage(self) -> TreeUsage:
        """What all processes of the run use now.

        Of many only few can have run since the last look: the others are not read again.
        """
        known, found, began = self._known, dict[str, Process](), time.monotonic()
        for pid in self.pids():
            process, ran = known.get(pid), self._read(pid, "schedstat")
            if process is None or process.tasks > 1 or not ran or process.ran != ran:
                process = self._process(pid, ran)
            if process is not None:
                found[pid] = process
        self._known = found
        processes = found.values()
        tables = sum(process.tables_bytes for process in processes)
        return TreeUsage(
            cpu_s=sum(process.cpu_s for process in processes),
            resident_bytes=sum(process.held_bytes for process in processes)
            + max((process.files_bytes for process in processes), default=0),
            least_bytes=tables
            + max((process.held_bytes - process.tables_bytes for process in processes), default=0),
            tasks=sum(process.tasks for process in processes),
            private_bytes=sum(process.private_bytes for process in processes),
            holders=frozenset(pid for pid, process in found.items() if process.holds),
            faulted_bytes=sum(process.faulted_bytes for process in processes),
            processes=found,
            began=began,
        )

    def _process(self, pid: str, ran: bytes) -> Process | None:
        fields = self._stat(pid)
        if len(fields) < 18:
            return None  # it ended just now, and was waited for
        user, system, user_of_dead, system_of_dead = map(int, fields[11:15])
        threads = int(fields[17])
        # Ticks are coarse; the scheduler's own figures are exact, but leave out threads that have ended.
        exact_s = _on_cpu_s(ran) if threads == 1 else self._threads_s(pid)
        cpu_s = max(exact_s, (user + system) / _TICKS_PER_S) + (user_of_dead + system_of_dead) / _TICKS_PER_S
        status = memory_file(pid, "status", self._fd)
        private, shared, swapped, tables, files = (kibibytes(status, name) << 10 for name in _COUNTED)
        return Process(
            parent=fields[1].decode(),
            ran=ran,
            cpu_s=cpu_s,
            tasks=threads,
            faulted_bytes=faulted_bytes(fields),
            private_bytes=private,
            held_bytes=private + shared + swapped + tables,
            tables_bytes=tables,
            files_bytes=files,
            holds=b"\nVmRSS:" in status,
            ready=fields[0] == RUNNING,
            computes=preempted(status),
        )

    def _threads_s(self, pid: str) -> float:
        threads = _threads(pid, self._fd)
        return sum(_on_cpu_s(self._read(f"{pid}/task/{thread}", "schedstat")) for thread in threads)

    def held(self, usage: TreeUsage) -> Held:
        """What holds the run up, given what its processes use."""
        if ready := [process for process in usage.processes.values() if process.ready]:
            return Held(ready=True, computes=any(process.computes for process in ready))
        # One that has not run since it was read may have been woken, and wait for its turn.
        states = {pid: b"".join(self._stat(pid)[:1]) for pid in usage.processes}
        if woken := [pid for pid, state in states.items() if state == RUNNING]:
            return Held(ready=True, computes=any(usage.processes[pid].computes for pid in woken))
        return Held(stalled=STALLED in states.values())

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
        return any(SHARED_WITHOUT_FILE in memory_file(pid, "maps", self._fd) for pid in self.pids())

    def part(self, pid: str) -> Part | None:
        """Resident and swapped memory of a process; None where we may not look."""
        parent = b"".join(self._stat(pid)[1:2]).decode()
        text, status = (memory_file(pid, name, self._fd) for name in ("smaps_rollup", "status"))
        if text:
            tables = kibibytes(status, b"\nVmPTE:")
            alone = sum(kibibytes(text, name) for name in (b"\nPrivate_Clean:", b"\nPrivate_Dirty:"))
            shared_too = kibibytes(text, b"\nPss:") + kibibytes(text, b"\nSwapPss:")
            return Part((shared_too + tables) << 10, (alone + tables) << 10, parent)
        return None if b"\nVmRSS:" in status else Part(0, 0)  # it has ended

    def sharing(self, parents: Mapping[str, str]) -> set[str]:
        """Those that have one memory with their parents now, as far as that is told. Takes milliseconds."""
        wanted = {*parents, *parents.values()}
        ours = {pid: int(pid) for pid in wanted} if self._shared else in_our_numbers(self._first, wanted)
        pairs = [(pid, parent) for pid, parent in parents.items() if pid in ours and parent in ours]
        return {pid for pid, parent in pairs if share_memory(ours[pid], ours[parent])}

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
        # One read: these are short, and every look reads one for each process.
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


def _on_cpu_s(schedstat: bytes) -> float:
    """CPU seconds of one thread, to the nanosecond."""
    figures = schedstat.split(None, 1)
    return int(figures[0]) / 1e9 if figures else 0.0


def memory_file(process: str, name: str, dir_fd: int | None = None) -> bytes:
    """What ``status``, ``maps`` or ``smaps_rollup`` says of a process's memory; nothing once it has none.

    Once its first thread has ended, a process says that itself no more, but its other threads do.
    """
    text = _whole(f"{process}/{name}", dir_fd)
    if b"\nVmRSS:" in text if name == "status" else text:
        return text
    first = process.rpartition("/")[2]
    for thread in _threads(process, dir_fd):
        of_thread = _whole(f"{process}/task/{thread}/{name}", dir_fd) if thread != first else b""
        if b"\nVmRSS:" in of_thread if name == "status" else of_thread:
            return of_thread
    return text


def _threads(process: str, dir_fd: int | None) -> list[str]:
    try:
        fd = os.open(f"{process}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return []
    try:
        return os.listdir(fd)
    except OSError:
        return []
    finally:
        os.close(fd)


def _whole(path: str, dir_fd: int | None) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd), "rb", 0) as file:
            return file.read()
    except OSError:
        return b""


def faulted_bytes(fields: list[bytes]) -> int:
    """Pages that a process was ever given, and the children that it has waited for, in bytes; from the fields
    of its ``stat`` from the state on."""
    return sum(map(int, fields[7:11])) * _PAGE


def kibibytes(text: bytes, name: bytes) -> int:
    """The number after ``name`` in a file like ``/proc/PID/status``; 0 where it is missing.

    ``name`` begins with a newline: a process chooses its own name, which the file shows in the first line and
    in which a newline is escaped.
    """
    at = text.find(name)
    return int(text[at + len(name) :].split(None, 1)[0]) if at >= 0 else 0

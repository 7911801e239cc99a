"""Measures the processes of a run through a /proc, where no control group does.

A fork-server in a pid namespace provides the /proc of that namespace when it starts. It contains no other
processes, so no pid can belong to a stranger. Without namespaces it is the machine's /proc, and a run is a
process group, which its processes cannot leave.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from whetstone.sandbox.cpu_starvation import StallObservation, ThreadWait, preempted

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FIRST = "1"  # the fork-server itself
_COUNTED = (b"\nRssAnon:", b"\nRssShmem:", b"\nVmSwap:", b"\nVmPTE:", b"\nRssFile:")
# States in `stat` of a process: it has or waits for a core; it is blocked in the kernel, deaf to signals.
RUNNING, STALLED = b"R", b"D"
# The kernel's name of anonymous shared memory in `/proc/PID/maps`.
SHARED_WITHOUT_FILE = b" /dev/zero (deleted)"


class Process(NamedTuple):
    """The state of one process when it last ran. Until it runs again, its usage does not change."""

    parent: str
    """Number of its parent in the same table."""
    ran: bytes
    """The kernel's record of its running time. A change shows that it ran again."""
    cpu_s: float
    """Includes the processes that it has waited for."""
    tasks: int
    faulted_bytes: int
    """Bytes of all pages that were given to it and to the children that it has waited for."""
    private_bytes: int
    held_bytes: int
    """Anonymous memory, swapped or not, and page tables."""
    tables_bytes: int
    """Page tables only, which are never shared."""
    files_bytes: int
    holds: bool
    """It has not ended."""
    ready: bool
    """It has a core or waits for one."""
    computes: bool
    """It does not just sleep again and again."""


@dataclass(frozen=True)
class TreeUsage:
    """Usage of a run's processes together: running ones, and ended ones that were not waited for."""

    cpu_s: float
    """Includes the processes that these have waited for."""
    resident_bytes: int
    """Pages of libraries count once; shared memory counts for each process that maps it."""
    least_bytes: int
    """Lower bound: the page tables of each, and the memory of the process that maps most."""
    tasks: int
    """All of them, with their threads."""
    private_bytes: int
    """Anonymous memory, counted for each process that shares it."""
    holders: frozenset[str]
    """Processes that hold memory: those that have not ended."""
    faulted_bytes: int
    """Bytes of all pages that were ever given to them."""
    processes: Mapping[str, Process]
    """Each of them, by its number."""
    began: float
    """Time of the first reading by the monotonic clock."""

    def grown_bytes(self, since: TreeUsage) -> int:
        """Return an upper bound of the growth since another reading: all pages that were given out, none
        released.

        A page is given out by one fault, or counted as memory of the process at once (huge pages). For a
        process that did not exist then, all pages may be its own.
        """
        grown = 0
        for pid, now in self.processes.items():
            if (then := since.processes.get(pid)) is None:
                grown += now.held_bytes
            else:
                more = now.faulted_bytes - then.faulted_bytes, now.held_bytes - then.held_bytes
                grown += max(*more, 0)
        return grown


class ThreadState(NamedTuple):
    """What a thread does."""

    number: str
    state: bytes
    """One letter of proc(5)."""
    ran: bytes
    """The kernel's record of its running time. A change shows that it ran again."""


class MemoryShare(NamedTuple):
    """Memory of one or several processes."""

    bytes: int
    """Proportional: its part of shared pages."""
    alone: int
    """Only pages that it shares with no other process."""
    parent: str = ""
    """Number of the parent, for a single process."""


class ProcessTable:
    """The processes of a fork-server's run."""

    def __init__(self, fd: int, *, shared: bool = False) -> None:
        """``fd`` is the open directory; ``close`` closes it.

        With ``shared`` it contains other processes, and ``select_run`` selects those of the run.
        """
        self._fd = fd
        self._shared = shared
        self._first = -1
        self._known: dict[str, Process] = {}

    @property
    def is_own(self) -> bool:
        """Whether the table contains only the run's processes, so that none need be selected."""
        return not self._shared

    def select_run(self, pid: int) -> None:
        """Start a run whose first process is ``pid``, the leader of a process group."""
        self._first = pid
        self._known = {}

    def pids(self) -> list[str]:
        """Return the numbers of the run's processes in this table."""
        try:
            names = [name for name in os.listdir(self._fd) if name.isdigit() and name != _FIRST]
        except OSError:
            return []  # the namespace has ended
        if not self._shared:
            return names
        group = b"%d" % self._first
        return [name for name in names if self._stat(name)[2:3] == [group]]

    def usage(self) -> TreeUsage:
        """Read the current usage of all processes of the run.

        Of many processes only a few can have run since the last reading. The others are not read again.
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
            return None  # it has just ended and been waited for
        user, system, user_of_dead, system_of_dead = map(int, fields[11:15])
        threads = int(fields[17])
        # Ticks are coarse. The scheduler's figures are exact but omit threads that have ended.
        exact_s = _on_cpu_s(ran)
        if threads != 1:
            schedstats = [self._read(f"{pid}/task/{tid}", "schedstat") for tid in _threads(pid, self._fd)]
            exact_s = sum(map(_on_cpu_s, schedstats))
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

    def stall(self, usage: TreeUsage) -> StallObservation:
        """Return what stalls the run, given the usage of its processes."""
        if ready := [process for process in usage.processes.values() if process.ready]:
            return StallObservation(ready=True, computes=any(process.computes for process in ready))
        # A process that has not run since its reading may have been woken and wait for a core.
        states = {pid: b"".join(self._stat(pid)[:1]) for pid in usage.processes}
        if woken := [pid for pid, state in states.items() if state == RUNNING]:
            return StallObservation(ready=True, computes=any(usage.processes[pid].computes for pid in woken))
        return StallObservation(stalled=STALLED in states.values())

    def longest_wait(self) -> ThreadWait:
        """Return the longest wait of any process's first thread for a core."""
        longest = ThreadWait(0.0, False)
        for pid in self.pids():
            figures = self._read(pid, "schedstat").split()
            if len(figures) > 1 and int(figures[1]) / 1e9 > longest.seconds:
                longest = ThreadWait(int(figures[1]) / 1e9, preempted(self._read(pid, "status")))
        return longest

    def shares_memory(self) -> bool:
        """Return whether a process has anonymous shared memory, which can persist unmapped."""
        return any(SHARED_WITHOUT_FILE in memory_file(pid, "maps", self._fd) for pid in self.pids())

    def socket_bytes(self) -> int:
        """Return an upper bound of the unread data in all sockets of the namespace, also in those that no
        process has open: connections that wait to be accepted. 0 if the namespace is not the run's own."""
        text = b"" if self._shared else self._read(_FIRST, "net/sockstat")
        return int((text.split(None, 3) + [b"0"] * 3)[2]) * _bytes_of_socket()

    def memory_share(self, pid: str) -> MemoryShare | None:
        """Return the resident and swapped memory of a process; None if it may not be read."""
        parent = b"".join(self._stat(pid)[1:2]).decode()
        text, status = (memory_file(pid, name, self._fd) for name in ("smaps_rollup", "status"))
        if text:
            tables = kibibytes(status, b"\nVmPTE:")
            alone = sum(kibibytes(text, name) for name in (b"\nPrivate_Clean:", b"\nPrivate_Dirty:"))
            shared_too = kibibytes(text, b"\nPss:") + kibibytes(text, b"\nSwapPss:")
            return MemoryShare((shared_too + tables) << 10, (alone + tables) << 10, parent)
        return None if b"\nVmRSS:" in status else MemoryShare(0, 0)  # it has ended

    def sharing_with_parents(self, parents: Mapping[str, str]) -> set[str]:
        """Return the processes that share one memory with their parents now, as far as known. Takes
        milliseconds."""
        wanted = {*parents, *parents.values()}
        own = {pid: int(pid) for pid in wanted} if self._shared else own_pids(self._first, wanted)
        pairs = [(pid, parent) for pid, parent in parents.items() if pid in own and parent in own]
        return {pid for pid, parent in pairs if share_memory(own[pid], own[parent])}

    def unlinked_bytes(self, folder: str) -> int:
        """Return the bytes on disk of files below a folder that have no name any more but are open in a
        process of the run."""
        found: dict[tuple[int, int], int] = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):  # it has ended
                files = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
                try:
                    for number in os.listdir(files):
                        with contextlib.suppress(OSError):
                            file = os.stat(number, dir_fd=files)
                            unlinked = stat.S_ISREG(file.st_mode) and not file.st_nlink
                            if unlinked and _is_below(folder, number, files):
                                found[file.st_dev, file.st_ino] = file.st_blocks * 512
                finally:
                    os.close(files)
        return sum(found.values())

    def kill_all(self) -> None:
        """Kill every process of the run, and those that they start meanwhile."""
        reached: set[str] = set()
        # Repeated, because a process may fork between the listing and its signal.
        while more := set(self.pids()) - reached:
            reached |= more
            for pid in more:
                self.signal(pid, signal.SIGKILL)

    def signal(self, pid: str, number: signal.Signals) -> None:
        """Send a signal to a process of the run. It reaches no other process with a reused number."""
        with contextlib.suppress(OSError):  # it has ended
            # The directory of a process serves as its pidfd.
            fd = os.open(pid, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                signal.pidfd_send_signal(fd, number)
            finally:
                os.close(fd)

    def thread_states(self, pid: str) -> frozenset[ThreadState]:
        """Return the state of each thread of a process; empty if it has been waited for."""
        return thread_states(pid, self._fd)

    def _stat(self, pid: str) -> list[bytes]:
        """Return the fields of ``stat`` from the state on: state, parent, process group, and so forth."""
        return self._read(pid, "stat").rpartition(b")")[2].split()

    def _read(self, pid: str, name: str) -> bytes:
        # One read call: these files are short, and every reading opens one for each process.
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
        """Close the descriptor."""
        os.close(self._fd)


@cache
def _is_below(folder: str, number: str, files: int) -> bool:
    """Return whether an open file is or was below a folder. The kernel names no path that is too long."""
    try:
        return os.readlink(number, dir_fd=files).startswith(f"{folder}/")
    except OSError:
        return True


def _bytes_of_socket() -> int:
    """Return how much unread data a socket may have sent. A program cannot change it (``zygote.seccomp``)."""
    with contextlib.suppress(OSError, ValueError), open("/proc/sys/net/core/wmem_default", "rb") as file:
        return int(file.read())
    return 208 << 10


def _on_cpu_s(schedstat: bytes) -> float:
    """Return CPU seconds of one thread, with a resolution of nanoseconds."""
    figures = schedstat.split(None, 1)
    return int(figures[0]) / 1e9 if figures else 0.0


def memory_file(process: str, name: str, dir_fd: int | None = None) -> bytes:
    """Return the text of ``status``, ``maps`` or ``smaps_rollup`` of a process; empty once it has no memory.

    After its first thread has ended, the process's own file is empty, but those of its other threads are not.
    """
    text = _read_file(f"{process}/{name}", dir_fd)
    if b"\nVmRSS:" in text if name == "status" else text:
        return text
    first = process.rpartition("/")[2]
    for thread in _threads(process, dir_fd):
        of_thread = _read_file(f"{process}/task/{thread}/{name}", dir_fd) if thread != first else b""
        if b"\nVmRSS:" in of_thread if name == "status" else of_thread:
            return of_thread
    return text


def thread_states(process: str, dir_fd: int | None = None) -> frozenset[ThreadState]:
    """Return the state of each thread of a process; empty if it has been waited for."""
    found: list[ThreadState] = []
    for thread in _threads(process, dir_fd):
        folder = f"{process}/task/{thread}"
        if fields := _read_file(f"{folder}/stat", dir_fd).rpartition(b")")[2].split():
            ran = _read_file(f"{folder}/schedstat", dir_fd)
            # A kernel without that file counts how often the thread left its core.
            ran = ran or _read_file(f"{folder}/status", dir_fd).partition(b"\nvoluntary_ctxt_switches:")[2]
            found.append(ThreadState(thread, fields[0], ran))
    return frozenset(found)


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


def _read_file(path: str, dir_fd: int | None) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd), "rb", 0) as file:
            return file.read()
    except OSError:
        return b""


def faulted_bytes(fields: list[bytes]) -> int:
    """Return the bytes of all pages given to a process and to the children that it has waited for.
    ``fields``: its ``stat`` from the state on."""
    return sum(map(int, fields[7:11])) * _PAGE


def kibibytes(text: bytes, name: bytes) -> int:
    """Return the number of KiB after ``name`` in a file such as ``/proc/PID/status``; 0 if it is missing.

    ``name`` begins with a newline. A process chooses its own name, which the file shows in the first line
    with newlines escaped.
    """
    at = text.find(name)
    return int(text[at + len(name) :].split(None, 1)[0]) if at >= 0 else 0


_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_VM = 1


def share_memory(one: int, other: int) -> bool:
    """Compare two processes by kcmp(2). False if one has ended or the kernel does not answer."""
    if (number := _KCMP.get(os.uname().machine)) is None:
        return False
    return ctypes.CDLL(None).syscall(number, one, other, _KCMP_VM, 0, 0) == 0


def own_pids(first: int, wanted: Collection[str]) -> dict[str, int]:
    """Return the process ids in this namespace for numbers in the pid namespace of ``first``."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        namespace = os.readlink(f"/proc/{first}/ns/pid")
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                number = _innermost_pid(name)
                if number in wanted and os.readlink(f"/proc/{name}/ns/pid") == namespace:
                    found[number] = int(name)
    return found


def _innermost_pid(name: str) -> str:
    with open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as file:
        return next((line.split()[-1] for line in file if line.startswith("NSpid:")), name)

"""The processes of a run, read through a /proc. So trees are measured where no control group does it.

A fork-server in a pid namespace hands out that namespace's own when it starts: nobody else is in there, and
no pid of it can belong to a stranger. Without namespaces it is the machine's, and a run is a process group,
which its processes cannot leave.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_FIRST = "1"  # the fork-server itself


@dataclass(frozen=True)
class TreeUsage:
    """What a run's processes use together: those that run, and those that ended and were not waited for."""

    cpu_s: float
    """Also of the processes that these have waited for."""
    resident_bytes: int
    """Pages of libraries once; memory that processes share as often as they share it."""
    processes: int
    """Of them, those that have not ended."""
    tasks: int
    """All of them, with their threads."""


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
        cpu_s, memory, files, processes, tasks = 0.0, 0, 0, 0, 0
        for pid in self.pids():
            fields = self._stat(pid)
            if len(fields) < 18:
                continue  # it ended just now, and was waited for
            user, system, user_of_dead, system_of_dead = map(int, fields[11:15])
            # Ticks are coarse; the scheduler's own figure is exact, but knows the main thread only.
            on_cpu = self._read(pid, "schedstat").split()
            exact_s = int(on_cpu[0]) / 1e9 if on_cpu else 0.0
            cpu_s += (
                max(exact_s, (user + system) / _TICKS_PER_S) + (user_of_dead + system_of_dead) / _TICKS_PER_S
            )
            processes += fields[0] != b"Z"
            tasks += int(fields[17])
            status = self._read(pid, "status")
            memory += sum(kibibytes(status, name) for name in (b"RssAnon:", b"RssShmem:", b"VmSwap:"))
            files = max(files, kibibytes(status, b"RssFile:"))
        return TreeUsage(cpu_s, (memory + files) << 10, processes, tasks)

    def proportional_bytes(self) -> int | None:
        """Resident and swapped memory, shared pages counted once; None where we may not look."""
        total = 0
        for pid in self.pids():
            if not (text := self._read(pid, "smaps_rollup")):
                if self._read(pid, "status").find(b"VmRSS:") < 0:
                    continue  # it has ended
                return None
            total += kibibytes(text, b"\nPss:") + kibibytes(text, b"\nSwapPss:")
        return total << 10

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


def kibibytes(text: bytes, name: bytes) -> int:
    """The number after ``name`` in a file like ``/proc/PID/status``; 0 where it is missing."""
    at = text.find(name)
    return int(text[at + len(name) :].split(None, 1)[0]) if at >= 0 else 0

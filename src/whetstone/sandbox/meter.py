"""Measures the first process of a run from outside, by its pidfd."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from whetstone.sandbox.cpu_starvation import StallObservation, preempted
from whetstone.sandbox.job import SandboxFault
from whetstone.sandbox.process_table import (
    RUNNING,
    SHARED_WITHOUT_FILE,
    STALLED,
    faulted_bytes,
    kibibytes,
    memory_file,
)

_UNSHARED = (b"\nPrivate_Clean:", b"\nPrivate_Dirty:", b"\nSwap:")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ProcessMeter:
    """CPU clock, memory and threads of one child process, which the meter can also signal.

    The pidfd guarantees that no value belongs to another process with a reused id.
    """

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self._files: dict[str, int] = {}
        pid = pid_of(pidfd)
        # The kernel's encoding of "CPU clock of all threads of a process" (clock_getcpuclockid(3)). For an
        # ended process it would name another clock.
        self._clock = (~pid << 3) | 2 if pid > 0 else None
        for name in ("status", "stat", "schedstat") if pid > 0 else ():
            # It may have ended already, or be hidden from this process. The final rusage still counts.
            with contextlib.suppress(OSError):
                self._files[name] = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def pid(self) -> int:
        """Return its process id in this namespace; -1 if it is gone."""
        return pid_of(self._pidfd)

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its threads so far; 0 if it has ended (the wait status has the
        total)."""
        if self._clock is None:
            return 0.0
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return 0.0

    def children_cpu_s(self) -> float:
        """Return the CPU seconds of the children that it has waited for, and of their children."""
        fields = self._read("stat").rpartition(b")")[2].split()
        return (int(fields[13]) + int(fields[14])) / _TICKS_PER_S if fields else 0.0

    def start_time(self) -> float:
        """Return the start time by the monotonic clock, up to a tick early; 0.0 if it has ended."""
        fields = self._read("stat").rpartition(b")")[2].split()
        suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        return int(fields[19]) / _TICKS_PER_S - suspended if fields else 0.0

    def delay_s(self) -> float:
        """Return the seconds that its first thread has waited for a core; 0.0 if the kernel does not report
        them."""
        figures = self._read("schedstat").split()
        return int(figures[1]) / 1e9 if len(figures) > 1 else 0.0

    def stall(self) -> StallObservation:
        """Return what stalls the process."""
        state = self._read("stat").rpartition(b")")[2].split(None, 1)[:1]
        if state == [RUNNING]:
            return StallObservation(ready=True, computes=preempted(self._read("status")))
        return StallObservation(stalled=state == [STALLED])

    def memory(self) -> tuple[int, int]:
        """Return (peak resident and swapped bytes with page tables, threads); zeros if it has ended."""
        text = self._read("status")
        if text and b"\nVmRSS:" not in text and (pid := pid_of(self._pidfd)) > 0:
            text = memory_file(f"/proc/{pid}", "status")
        now = kibibytes(text, b"\nVmRSS:") + kibibytes(text, b"\nVmSwap:")
        resident = max(kibibytes(text, b"\nVmHWM:"), now) + kibibytes(text, b"\nVmPTE:")
        return resident << 10, kibibytes(text, b"\nThreads:")

    def faulted_bytes(self) -> int:
        """Return the bytes of all pages that were given to it and to the children that it has waited for."""
        return faulted_bytes(self._read("stat").rpartition(b")")[2].split())

    def shares_memory(self) -> bool:
        """Return whether it has anonymous shared memory, which can persist unmapped."""
        if (pid := pid_of(self._pidfd)) <= 0:
            return False
        return SHARED_WITHOUT_FILE in memory_file(f"/proc/{pid}", "maps")

    def unshared_bytes(self) -> int:
        """Return the resident bytes that only this process holds now; 0 if unknown.

        The kernel needs about a millisecond for each 200 MiB.
        """
        if (pid := pid_of(self._pidfd)) <= 0:
            return 0
        text = memory_file(f"/proc/{pid}", "smaps_rollup")
        return sum(kibibytes(text, name) for name in _UNSHARED) << 10

    def _read(self, name: str) -> bytes:
        try:
            return os.pread(self._files[name], 8192, 0)
        except (OSError, KeyError):
            return b""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. SIGKILL also ends a stopped process."""
        with contextlib.suppress(ProcessLookupError):  # it ended by itself; its report is on the way
            signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._pidfd)
        for fd in self._files.values():
            os.close(fd)


def pid_of(pidfd: int) -> int:
    """Return the process id in this pid namespace; -1 if the process is gone."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", "rb") as file:
            return int(file.read().split(b"\nPid:", 1)[1].split(None, 1)[0])
    except (OSError, IndexError, ValueError) as error:
        raise SandboxFault(f"cannot read a child's process id from /proc: {error}") from None

"""What a running child has used so far, read from outside by its pidfd."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from whetstone.sandbox.job import SandboxFault

_KIB = 1024


class Meter:
    """CPU clock, memory and threads of one process of ours, which it can also kill.

    The pidfd rules out that a number read here belongs to another process with a reused id.
    """

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self._status = -1
        pid = pid_of(pidfd)
        # The kernel's encoding of "CPU clock of all threads of a process" (clock_getcpuclockid(3)).
        self._clock = (~pid << 3) | 2
        if pid > 0:
            try:
                self._status = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._status = -1  # ended by now, or hidden from us: the final rusage still counts

    def cpu_s(self) -> float:
        """CPU seconds of all its threads so far; 0 when it has ended (the wait status says more)."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return 0.0

    def memory(self) -> tuple[int, int]:
        """(largest resident plus swapped bytes, threads) so far; zeros when it has ended."""
        if self._status < 0:
            return 0, 0
        try:
            text = os.pread(self._status, 8192, 0)
        except OSError:
            return 0, 0
        now = _field(text, b"VmRSS:") + _field(text, b"VmSwap:")
        return max(_field(text, b"VmHWM:"), now) * _KIB, _field(text, b"Threads:")

    def kill(self) -> None:
        """Send SIGKILL, which also ends a stopped process."""
        with contextlib.suppress(ProcessLookupError):  # ended by itself; its report is on the way
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._pidfd)
        if self._status >= 0:
            os.close(self._status)


def pid_of(pidfd: int) -> int:
    """The process id in our own namespace, -1 when the process is gone."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", "rb") as file:
            return int(file.read().split(b"\nPid:", 1)[1].split(None, 1)[0])
    except (OSError, IndexError, ValueError) as error:
        raise SandboxFault(f"cannot read a child's process id from /proc: {error}") from None


def _field(text: bytes, name: bytes) -> int:
    at = text.find(name)
    return int(text[at + len(name) :].split(None, 1)[0]) if at >= 0 else 0

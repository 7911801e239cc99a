"""Stops the processes of a run by signals, where no control group freezes them.

The processes may continue each other, so a signal for each is not enough. They stay stopped once all were
stopped at one moment: nothing is left that could continue one, because a program may not make a timer or a
descriptor that sends signals (``zygote.seccomp``).
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection
from typing import Protocol

from whetstone.sandbox.cgroup import ControlGroup
from whetstone.sandbox.meter import ProcessMeter
from whetstone.sandbox.process_table import STALLED, ThreadState, thread_states

# Stopped, also for a tracer, and ended.
_STOPPED = frozenset((b"T", b"t", b"Z", b"X"))


class RunProcesses(Protocol):
    """The processes of a run."""

    def pids(self) -> list[str]:
        """Return their numbers."""
        ...

    def thread_states(self, pid: str) -> frozenset[ThreadState]:
        """Return the state of each thread; empty if the process has been waited for."""
        ...

    def signal(self, pid: str, number: signal.Signals) -> None:
        """Send a signal. It reaches no other process with a reused number."""
        ...


class OnlyProcess:
    """A run that may not start a second process."""

    def __init__(self, meter: ProcessMeter) -> None:
        self._meter = meter

    def pids(self) -> list[str]:
        """See RunProcesses."""
        pid = self._meter.pid()
        return [str(pid)] if pid > 0 else []

    def thread_states(self, pid: str) -> frozenset[ThreadState]:
        """See RunProcesses."""
        return thread_states(f"/proc/{pid}")

    def signal(self, pid: str, number: signal.Signals) -> None:
        """See RunProcesses."""
        self._meter.signal(number)


class GroupProcesses:
    """A run whose processes only a control group lists."""

    def __init__(self, group: ControlGroup, others: Collection[str]) -> None:
        """``others`` are processes of the group that belong to its fork-server."""
        self._group = group
        self._others = others

    def pids(self) -> list[str]:
        """See RunProcesses."""
        return [pid for pid in self._group.pids() if pid not in self._others]

    def thread_states(self, pid: str) -> frozenset[ThreadState]:
        """See RunProcesses."""
        return thread_states(f"/proc/{pid}")

    def signal(self, pid: str, number: signal.Signals) -> None:
        """See RunProcesses."""
        with contextlib.suppress(OSError):  # it has ended
            pidfd = os.pidfd_open(int(pid))
            try:
                if pid in self._group.pids():
                    signal.pidfd_send_signal(pidfd, number)
            finally:
                os.close(pidfd)


def stop_all(run: RunProcesses) -> bool:
    """Send SIGSTOP to every process that is not stopped. Returns whether all were stopped at one moment.

    That is the case if two complete readings show the same threads, none of which computes, and none ran
    between its readings: then none ran from the end of the first reading to the start of the second. A thread
    may also be blocked in the kernel, for example a parent until its child of ``vfork`` has ended. It gets
    its signal at that moment, so that no process can have revoked it, and stops before it computes again.
    """
    before = {pid: run.thread_states(pid) for pid in run.pids()}
    for pid, threads in before.items():
        if any(thread.state not in _STOPPED for thread in threads):
            run.signal(pid, signal.SIGSTOP)
    states = {thread.state for threads in before.values() for thread in threads}
    if states - _STOPPED - {STALLED}:
        return False
    return before == {pid: run.thread_states(pid) for pid in run.pids()}


def continue_all(run: RunProcesses) -> None:
    """Let all processes continue."""
    for pid in run.pids():
        run.signal(pid, signal.SIGCONT)

"""Scheduling priority for supervisors, where the kernel allows it (root; CAP_SYS_NICE)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator


class SupervisorPriority:
    """Raises the priority of this thread above all computing processes. The thread sleeps between readings,
    so it uses little CPU time."""

    def __init__(self) -> None:
        self._before: tuple[int, os.sched_param] | None = None

    def raise_priority(self) -> None:
        """Raise the priority. Without the right to do so nothing changes."""
        if self._before is None:
            self._before = os.sched_getscheduler(0), os.sched_getparam(0)
            with contextlib.suppress(OSError):
                # RESET_ON_FORK: processes that this thread starts must not inherit the priority.
                os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))

    def restore(self) -> None:
        """Restore the previous priority."""
        if self._before is not None:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, *self._before)
            self._before = None


@contextlib.contextmanager
def supervisor_priority() -> Generator[SupervisorPriority]:
    """Yield an object that can raise the priority. At the end of the context the priority is restored."""
    priority = SupervisorPriority()
    try:
        yield priority
    finally:
        priority.restore()

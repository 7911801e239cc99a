"""Whoever supervises gets the core first, where the kernel lets us say so (root; CAP_SYS_NICE)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator


class Turn:
    """Whether this thread goes before all that compute. It sleeps from look to look, so it takes little."""

    def __init__(self) -> None:
        self._before: tuple[int, os.sched_param] | None = None

    def go_first(self) -> None:
        """From now on. Where it may not be, nothing changes."""
        if self._before is None:
            self._before = os.sched_getscheduler(0), os.sched_getparam(0)
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))

    def give_back(self) -> None:
        """As it was before."""
        if self._before is not None:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, *self._before)
            self._before = None


@contextlib.contextmanager
def turn() -> Generator[Turn]:
    """A turn that is given back at the end."""
    mine = Turn()
    try:
        yield mine
    finally:
        mine.give_back()

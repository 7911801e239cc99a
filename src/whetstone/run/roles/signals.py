"""Ends a role: the first signal drains it, the second stops it, and it never outlives its parent."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def die_with_parent(parent: int | None) -> None:
    """Let the kernel kill this process when ``parent``, which started it, ends for any reason.

    Roles can be killed at any time. This keeps a killed run from blocking its next start.
    """
    if parent is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the call above, and then no signal would come.
    if os.getppid() != parent:
        sys.exit(1)


def on_signals(drain: Callable[[], object], stop: Callable[[], object]) -> None:
    """Call ``drain`` at the first SIGTERM or SIGINT, and ``stop`` at the second; a third one kills.

    Call it on the event loop on which both should run.
    """
    loop = asyncio.get_running_loop()
    received = 0

    def handle() -> None:
        nonlocal received
        received += 1
        if received == 1:
            drain()
            return
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            # The default action of a third signal ends the process, also if the event loop hangs.
            signal.signal(number, signal.SIG_DFL)
        stop()

    for number in _SIGNALS:
        loop.add_signal_handler(number, handle)

"""How a role ends: told once it drains, told again it ends at once, and it never outlives who started it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def live_with(parent: int | None) -> None:
    """Have the kernel kill this process when ``parent``, which started it, is gone, however that ended.

    All roles can be killed at any moment; what a killed run has left is then free for the next start.
    """
    if parent is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def on_signals(drain: Callable[[], object], end: Callable[[], object]) -> None:
    """Call ``drain`` at the first SIGTERM or SIGINT, ``end`` at the second; a third kills.

    To be called on the event loop on which both are to run.
    """
    loop = asyncio.get_running_loop()
    told = 0

    def tell() -> None:
        nonlocal told
        told += 1
        if told == 1:
            drain()
            return
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        end()

    for number in _SIGNALS:
        loop.add_signal_handler(number, tell)

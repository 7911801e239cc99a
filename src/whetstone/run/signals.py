"""Ends a run or a role: the first signal lets it finish its work, the second stops it at once, and no role
outlives its parent."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whetstone.trainer.ranks import Ranks

_PR_SET_PDEATHSIG = 1
# Slurm sends the last one a while before the end of an allocation, where a job asks for it.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


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


@contextmanager
def drain_on_signal(drain: Callable[[], object]) -> Generator[None]:
    """Call ``drain`` on the running event loop at the first SIGTERM, SIGINT or SIGUSR1 of the block.

    The second signal raises KeyboardInterrupt, and a third one kills.
    """
    loop = asyncio.get_running_loop()
    with _first_signal(lambda: loop.call_soon_threadsafe(drain)):
        yield


class StopRequest:
    """A request to end the training loop of this process after its current step.

    Several ranks decide together: one that was told to stop stops all.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._requested = False

    @contextmanager
    def listening(self) -> Generator[None]:
        """Take the first SIGTERM, SIGINT or SIGUSR1 of the block as the request.

        See ``drain_on_signal`` for further ones.
        """
        with _first_signal(self._request):
            yield

    def due(self) -> bool:
        """Return whether no step may begin. All ranks call this together."""
        return bool(self._ranks.largest(int(self._requested), "the ranks to agree whether the run goes on"))

    def _request(self) -> None:
        self._requested = True
        if self._ranks.first:
            # The signal may have interrupted a write of the display, which cannot be entered twice.
            with suppress(OSError):
                os.write(2, b"\nstopping after this step, with a checkpoint; Ctrl-C again stops at once\n")


@contextmanager
def _first_signal(call: Callable[[], object]) -> Generator[None]:
    """Call ``call`` in the handler of the first signal. Handlers of the event loop would not do: they wait
    until a training step lets the loop run."""
    received = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received == 1:
            call()
            return
        for each in before:
            # The default action ends the process, also if its end hangs.
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    # Only the main thread can have handlers. A signal that this process was started to ignore stays ignored.
    main = threading.current_thread() is threading.main_thread()
    before = {each: signal.getsignal(each) for each in _SIGNALS} if main else {}
    before = {each: handler for each, handler in before.items() if handler is not signal.SIG_IGN}
    for each in before:
        signal.signal(each, handle)
    try:
        yield
    finally:
        for each, handler in before.items() if received < 2 else ():
            signal.signal(each, handler)

"""A thread that measures sessions between their calls, so that limits hold then too."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

_PERIOD_S = 0.1
# With many sessions it measures less often, so that it uses at most this part of a core.
_LARGEST_SHARE = 0.02


class WatchedSandbox(Protocol):
    """A sandbox for sessions."""

    def watch(self) -> None:
        """Measure its session, unless it is being called."""
        ...


class SessionWatch:
    """The thread. It ends with the owner of the sandboxes, which it does not keep alive."""

    def __init__(self, sandboxes: Callable[[], Sequence[WatchedSandbox]]) -> None:
        """``sandboxes`` is a method of the owner and returns those that exist now."""
        self._sandboxes = weakref.WeakMethod(sandboxes)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread unless it runs. Not thread-safe."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="session-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        wait_s = _PERIOD_S
        while not self._stopped.wait(wait_s):
            # As long as this method object lives, the owner cannot be finalized, which would need the locks
            # of the sandboxes.
            if (sandboxes := self._sandboxes()) is None:
                return
            began = time.thread_time()
            for sandbox in sandboxes():
                sandbox.watch()
            wait_s = max(_PERIOD_S, (time.thread_time() - began) / _LARGEST_SHARE)
            del sandboxes

    def stop(self) -> None:
        """End the thread, which may still measure one round."""
        self._stopped.set()

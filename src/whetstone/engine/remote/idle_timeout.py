"""End requests that receive no data for too long.

A request with a started answer is idle since its own last byte. Any other request may wait in the server's
queue, so it is idle since the last byte of any request to this server: a queue that moves is not idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager


class IdleTimeout(Exception):
    """A request that received no byte for too long; the message says for how long."""


class IdleWatch:
    """Tracks the data of one server, with the clock of the event loop in which it is created."""

    def __init__(self, limit_s: float, key: str = "--silence") -> None:
        """``key``: the setting of the limit, for messages."""
        self._limit_s = limit_s
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._last_byte = self._loop.time()
        self._open: dict[object, float] = {}
        self.timeouts = 0
        """Number of requests that were ended."""

    @asynccontextmanager
    async def watch(self, more_s: float = 0.0) -> AsyncGenerator[Callable[[], None]]:
        """End the block with IdleTimeout if no byte arrives for the limit. The block calls the yielded
        function for each byte.

        ``more_s`` is added to the limit until the first byte: the time in which a server may compute without
        sending.
        """
        token, start = object(), self._loop.time()
        own_last_byte: float | None = None
        timer: asyncio.TimerHandle | None = None

        def on_byte() -> None:
            nonlocal own_last_byte
            first = own_last_byte is None
            own_last_byte = self._last_byte = self._loop.time()
            if first and timer is not None:
                timer.cancel()
                check()

        def check() -> None:
            nonlocal timer
            until = (
                max(start, self._last_byte) + more_s if own_last_byte is None else own_last_byte
            ) + self._limit_s
            # One timer that is set again is cheaper than one per byte.
            left = until - self._loop.time()
            if left > 0:
                timer = self._loop.call_later(left, check)
            else:
                limit.reschedule(self._loop.time())

        self._open[token] = start
        limit = asyncio.timeout(None)
        try:
            async with limit:
                check()
                yield on_byte
        except TimeoutError:
            if not limit.expired():
                raise
            self.timeouts += 1
            allowed = self._limit_s + (more_s if own_last_byte is None else 0.0)
            raise IdleTimeout(f"no byte for {allowed:.0f} s ({self._key})") from None
        finally:
            del self._open[token]
            if timer is not None:
                timer.cancel()

    def describe(self) -> str:
        """Describe the open requests and their idle time; empty if none is open."""
        if not self._open:
            return ""
        now = self._loop.time()
        requests = f"{len(self._open)} request{'s' * (len(self._open) > 1)} open"
        oldest = f"the oldest for {now - min(self._open.values()):.0f} s"
        again = f", {self.timeouts} timed out so far" if self.timeouts else ""
        return f"{requests}, {oldest}, last byte {now - self._last_byte:.0f} s ago{again}"

"""What a server was last heard to say, and the end of requests that wait too long without a byte.

A request whose answer has begun is silent since its own last byte. One whose answer has not may wait its turn
behind others, and is silent since the last byte that any request to this server brought: a queue that moves
is no silence, and when nothing moves at all the limit is that of one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager


class Silent(Exception):
    """A request that brought no byte for too long; the message says for how long."""


class Hearing:
    """What is heard of one server, on the clock of the event loop in which it is made."""

    def __init__(self, limit_s: float, key: str = "--silence") -> None:
        """``key``: what a person sets the limit by, for messages."""
        self._limit_s = limit_s
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._open: dict[object, float] = {}
        self.given_up = 0
        """Requests that were ended for their silence."""

    @asynccontextmanager
    async def limited(self, more_s: float = 0.0) -> AsyncGenerator[Callable[[], None]]:
        """End the block with Silent when no byte comes for the limit. The block calls what it gets for each.

        ``more_s`` is added to the limit until its first: the time that a server may work without a word.
        """
        token, begun = object(), self._loop.time()
        own: float | None = None
        timer: asyncio.TimerHandle | None = None

        def heard() -> None:
            nonlocal own
            first = own is None
            own = self._heard = self._loop.time()
            if first and timer is not None:
                timer.cancel()
                look()

        def look() -> None:
            nonlocal timer
            until = (max(begun, self._heard) + more_s if own is None else own) + self._limit_s
            left = until - self._loop.time()
            if left > 0:
                timer = self._loop.call_later(left, look)
            else:
                limit.reschedule(self._loop.time())

        self._open[token] = begun
        limit = asyncio.timeout(None)
        try:
            async with limit:
                look()
                yield heard
        except TimeoutError:
            if not limit.expired():
                raise
            self.given_up += 1
            allowed = self._limit_s + (more_s if own is None else 0.0)
            raise Silent(f"no byte for {allowed:.0f} s ({self._key})") from None
        finally:
            del self._open[token]
            if timer is not None:
                timer.cancel()

    def described(self) -> str:
        """The open requests and the silence, in words; empty where nothing is open."""
        if not self._open:
            return ""
        now = self._loop.time()
        requests = f"{len(self._open)} request{'s' * (len(self._open) > 1)} open"
        oldest = f"the oldest for {now - min(self._open.values()):.0f} s"
        again = f", {self.given_up} given up for silence so far" if self.given_up else ""
        return f"{requests}, {oldest}, last byte {now - self._heard:.0f} s ago{again}"

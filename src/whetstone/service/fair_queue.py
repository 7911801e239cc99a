"""A fair queue: a limited number of programs run, and clients share the places in turn.

All calls are on one event loop. Each client has its own queue, and free places go to the queues in turn. So a
client that sends thousands of programs delays only itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from whetstone.core.http.refusal import too_busy, too_late

# The mean duration of a program before any has been measured.
_FIRST_GUESS_S = 0.05
# The weight of the newest program in the moving mean.
_NEWEST_WEIGHT = 0.05


class Gate:
    """Places for programs, and a queue for each client."""

    def __init__(self, places: int, most_waiting: int) -> None:
        self.places = places
        self.taken = 0
        self.waiting = 0
        self._most_waiting = most_waiting
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._mean_s = _FIRST_GUESS_S

    def expected_s(self, client: str) -> float:
        """Return the expected wait of a program of ``client`` that arrives now, in seconds."""
        if self.taken < self.places:
            return 0.0
        own = len(self._queues.get(client, ())) + 1
        ahead = 1 + sum(min(len(queue), own) for queue in self._queues.values())
        return ahead * self._mean_s / self.places

    def resize(self, places: int) -> None:
        """Set the number of places. If there are fewer than before, running programs keep theirs."""
        self.places = places
        while self._queues and self.taken < self.places:
            self.taken += 1
            self._release_place()

    def admit(self, client: str, deadline: float) -> None:
        """Raise RequestRefused if a program would start after ``deadline`` (loop clock), or the queue is
        full."""
        now = asyncio.get_running_loop().time()
        expected = self.expected_s(client)
        if self.waiting >= self._most_waiting:
            raise too_busy(f"{self.waiting} programs are queued already", expected)
        if now + expected > deadline:
            left = max(deadline - now, 0)
            raise too_busy(
                f"the expected wait is {expected:.1f} s, and the deadline is in {left:.1f} s", expected
            )

    @asynccontextmanager
    async def place(self, client: str, deadline: float) -> AsyncGenerator[None]:
        """Hold a place during the block. Raises RequestRefused if none is free by ``deadline``."""
        if self.taken < self.places and not self._queues:
            self.taken += 1
        else:
            await self._wait(client, deadline)
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            yield
            self._mean_s += _NEWEST_WEIGHT * (loop.time() - start - self._mean_s)
        finally:
            self._release_place()

    def take_more(self, most: int, cores: int) -> int:
        """Take up to ``most`` more places for a program that has one, while ``cores`` are idle."""
        more = 0 if self._queues else max(min(most, min(cores, self.places) - self.taken), 0)
        self.taken += more
        return more

    def give_back(self, places: int) -> None:
        """Release places that ``take_more`` took."""
        for _ in range(places):
            self._release_place()

    async def _wait(self, client: str, deadline: float) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(granted)
        self.waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await granted
        except BaseException as error:
            if granted.done() and not granted.cancelled():
                # The place was granted in the moment of the timeout. Another program gets it.
                self._release_place()
            else:
                self._remove(client, granted)
            if isinstance(error, TimeoutError):
                raise too_late(self.expected_s(client), "no place was free before the deadline") from None
            raise

    def _remove(self, client: str, granted: asyncio.Future[None]) -> None:
        queue = self._queues.get(client)
        if queue is None or granted not in queue:
            # `_release_place` removed it already.
            return
        queue.remove(granted)
        self.waiting -= 1
        if not queue:
            del self._queues[client]

    def _release_place(self) -> None:
        """Give a free place to the first program of the next queue."""
        # `taken` stays the same if the place is handed on. `resize` may have left more taken than places.
        while self._queues and self.taken <= self.places:
            client, queue = next(iter(self._queues.items()))
            granted = queue.popleft()
            self.waiting -= 1
            if queue:
                self._queues.move_to_end(client)
            else:
                del self._queues[client]
            # A cancelled wait is still in its queue, and must not get the place.
            if not granted.done():
                granted.set_result(None)
                return
        self.taken -= 1

"""Who goes next: places for as many programs as there are cores to run them, shared fairly among clients.

All on one event loop. Each client has a line of its own, and places go round the lines: one who sends
thousands of programs waits for them, and nobody else does.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from whetstone.judge_service.refusal import too_busy, too_late

_FIRST_GUESS_S = 0.05
_FORGETS = 0.05
"""How much the newest program counts in the mean."""


class Gate:
    """Places for programs, and the lines of those who wait for one."""

    def __init__(self, places: int, most_waiting: int) -> None:
        self.places = places
        self.taken = 0
        self.waiting = 0
        self._most_waiting = most_waiting
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._mean_s = _FIRST_GUESS_S

    def expected_s(self, client: str) -> float:
        """How long a program of ``client`` that arrives now will probably wait."""
        if self.taken < self.places:
            return 0.0
        own = len(self._lines.get(client, ())) + 1
        ahead = 1 + sum(min(len(line), own) for line in self._lines.values())
        return ahead * self._mean_s / self.places

    def resize(self, places: int) -> None:
        """There are more places from now on, or fewer: those that are too many go as they become free."""
        self.places = places
        while self._lines and self.taken < self.places:
            self.taken += 1
            self._leave()

    def admit(self, client: str, deadline: float) -> None:
        """Raise Refused for what would not be begun by ``deadline`` (of the loop's clock), or is too much."""
        now = asyncio.get_running_loop().time()
        expected = self.expected_s(client)
        if self.waiting >= self._most_waiting:
            raise too_busy(f"{self.waiting} programs wait already", expected)
        if now + expected > deadline:
            left = max(deadline - now, 0)
            raise too_busy(
                f"about {expected:.1f} s of waiting lie ahead, and the deadline is in {left:.1f} s", expected
            )

    @asynccontextmanager
    async def place(self, client: str, deadline: float) -> AsyncGenerator[None]:
        """A place for as long as the block lasts. Raises Refused when none comes by ``deadline``."""
        if self.taken < self.places and not self._lines:
            self.taken += 1
        else:
            await self._wait(client, deadline)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
            self._mean_s += _FORGETS * (loop.time() - began - self._mean_s)
        finally:
            self._leave()

    def take_more(self, most: int, cores: int) -> int:
        """Take up to ``most`` more places for one who has a place, as far as there are idle ``cores``."""
        more = 0 if self._lines else max(min(most, min(cores, self.places) - self.taken), 0)
        self.taken += more
        return more

    def give_back(self, places: int) -> None:
        """Hand on what was taken by ``take_more``."""
        for _ in range(places):
            self._leave()

    async def _wait(self, client: str, deadline: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, deque()).append(turn)
        self.waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave()  # the place came in the same moment
            else:
                self._forget(client, turn)
            if isinstance(error, TimeoutError):
                raise too_late(self.expected_s(client), "no place was free before the deadline") from None
            raise

    def _forget(self, client: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(client)
        if line is None or turn not in line:
            return  # a place came by in the meantime, and passed it over
        line.remove(turn)
        self.waiting -= 1
        if not line:
            del self._lines[client]

    def _leave(self) -> None:
        """Hand the place on to the first of the next line."""
        while self._lines and self.taken <= self.places:
            client, line = next(iter(self._lines.items()))
            turn = line.popleft()
            self.waiting -= 1
            if line:
                self._lines.move_to_end(client)
            else:
                del self._lines[client]
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1

"""In which order the later turns of episodes are asked.

The last bits of a reply's log-probs depend on the replies beside it, and when a turn is judged depends on the
load of the machine. Where a run must give the same bits again, the turns of a round are therefore asked
together, as soon as nobody is busy with an earlier one, and in a fixed order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class Pace:
    """Shared by the episodes of one engine. With ``together`` False nobody waits for anybody.

    Whoever takes part says so by ``enter`` before anything is awaited, and does what it does within a
    ``seat``.
    """

    def __init__(self, *, together: bool = False) -> None:
        self._together = together
        self._busy = 0
        self._waiting: list[tuple[tuple[int, ...], asyncio.Future[None]]] = []

    def enter(self, count: int) -> None:
        """So many will each take a seat."""
        self._busy += count

    @contextmanager
    def seat(self) -> Generator[None]:
        """Around all turns of one who entered."""
        try:
            yield
        finally:
            self._busy -= 1
            self._open()

    async def turn(self, *place: int) -> None:
        """Wait until a later turn may be asked; ``place`` is that among those who ask with it."""
        if not self._together:
            return
        loop = asyncio.get_running_loop()
        mine = (place, loop.create_future())
        self._waiting.append(mine)
        self._busy -= 1
        loop.call_soon(self._open)  # not at once: then the last to come would go on before the others
        try:
            await mine[1]
        except asyncio.CancelledError:
            if mine in self._waiting:
                self._waiting.remove(mine)
                self._busy += 1
            raise

    def _open(self) -> None:
        if self._busy > 0 or not self._waiting:
            return
        ready, self._waiting = sorted(self._waiting, key=lambda one: one[0]), []
        self._busy = len(ready)
        for _, future in ready:
            if not future.done():
                future.set_result(None)

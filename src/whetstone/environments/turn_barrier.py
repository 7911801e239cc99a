"""Synchronizes the later turns of episodes.

The last bits of a reply's log-probs depend on the other replies in its batch. The time of a verdict depends
on the load of the machine. A run that must be repeatable bit by bit therefore requests the turns of a round
together and in a fixed order. It does so once no participant is busy with an earlier turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class TurnBarrier:
    """Shared by the episodes of one engine. With ``synchronized`` False, no participant waits.

    Call ``register`` for all participants before the first await. Each participant then works within
    ``participant``.
    """

    def __init__(self, *, synchronized: bool = False) -> None:
        self._synchronized = synchronized
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._waiting: list[tuple[tuple[int, ...], asyncio.Future[None]]] = []

    def register(self, count: int) -> None:
        """Add ``count`` participants."""
        self._busy += count
        if count:
            self._idle.clear()

    async def wait_idle(self) -> None:
        """Wait until no participant is left."""
        await self._idle.wait()

    @contextmanager
    def participant(self) -> Generator[None]:
        """Return the context of one participant, for all of its turns."""
        try:
            yield
        finally:
            self._busy -= 1
            self._release_turns()

    async def wait(self, *order: int) -> None:
        """Wait until the next turn may be requested. ``order`` is the sort key among the turns that are
        released together."""
        if not self._synchronized:
            return
        loop = asyncio.get_running_loop()
        entry = (order, loop.create_future())
        self._waiting.append(entry)
        self._busy -= 1
        # Deferred, because the last participant would otherwise continue before the others.
        loop.call_soon(self._release_turns)
        try:
            await entry[1]
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                # The context of the participant subtracts it when it ends.
                self._busy += 1
            raise

    def _release_turns(self) -> None:
        if self._busy > 0:
            return
        if not self._waiting:
            self._idle.set()
            return
        ready, self._waiting = sorted(self._waiting, key=lambda one: one[0]), []
        self._busy = len(ready)
        for _, future in ready:
            if not future.done():
                future.set_result(None)

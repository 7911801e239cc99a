"""A rollout replica: it takes prompts on lease, runs an episode of each, and hands the groups in.

Episodes are tasks of one event loop: while some replies are written others are judged. It drains when it is
told to end, and whatever it could not finish is leased to others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from uuid import uuid4

from whetstone.errors import UserError
from whetstone.flow.books import Offer
from whetstone.flow.desk import Delivery, Grant
from whetstone.flow.exchange import LONGEST_WAIT_S, Ask, ForReplicas, News
from whetstone.flow.facts import Facts

BEAT_S = 10.0
"""So often the flow hears of a replica that drains, or fetches weights."""
_LEAVE_S = 5.0

Episode = Callable[[Grant], Awaitable[dict[str, tuple[Facts, bytes]]]]
"""Samples and judges the group of a prompt, for each model. Raises UserError where there can be none."""

Groups = dict[str, tuple[Facts, bytes]]


class Weights(Protocol):
    """The weights that a replica serves."""

    @property
    def serving(self) -> Mapping[str, Offer]:
        """Of each model."""
        ...

    async def apply(self, model: str, offer: Offer) -> None:
        """Fetch them and serve them; replies in flight go on under them. Raises UserError."""
        ...


class Replica:
    """One replica on an event loop; ``run`` is its life."""

    def __init__(
        self,
        name: str,
        flow: ForReplicas,
        episode: Episode,
        weights: Weights,
        *,
        room: int,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``room``: how many prompts it works on at once."""
        self.name, self._flow, self._episode, self._weights = name, flow, episode, weights
        self._incarnation = uuid4().hex
        self._room, self._say = room, say
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._finished: asyncio.Queue[tuple[Delivery, asyncio.Future[str]]] = asyncio.Queue()
        self._drains = asyncio.Event()
        self.receipts: Counter[str] = Counter()
        """What became of what was delivered."""

    def drain(self) -> None:
        """Take no prompts any more; ``run`` ends when those under way are delivered."""
        self._drains.set()

    async def run(self) -> None:
        """Work until drained. However it ends, what it still holds is given back.

        Raises UserError when the flow does not answer any more, or is another run's.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                delivering = tasks.create_task(self._deliver_on())
                try:
                    asking = tasks.create_task(self._ask_on(tasks))
                    stopping = tasks.create_task(self._drains.wait())
                    await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
                    asking.cancel()
                    stopping.cancel()
                    while self._tasks:
                        await self._beat()
                finally:
                    delivering.cancel()
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            await self._leave()

    async def _ask_on(self, tasks: asyncio.TaskGroup) -> None:
        """Have a question at the flow all the time, which it answers when there is something new."""
        while True:
            news = await self._flow.take(self._asks(self._room, LONGEST_WAIT_S))
            self._let_go(news)
            await self._apply(news.offers)
            # All in one go, in the order of draws: the engine then batches them alike every time.
            for grant in news.leases:
                self._tasks[grant.serial] = tasks.create_task(self._work(grant))

    async def _apply(self, offers: Mapping[str, Offer]) -> None:
        """Serve what is offered. However long that takes, the flow hears that this replica is there."""
        for model, offer in offers.items():
            applying = asyncio.ensure_future(self._weights.apply(model, offer))
            try:
                while not (await asyncio.wait([applying], timeout=BEAT_S))[0]:
                    # No room: what it has is sampled under the weights that it is about to replace.
                    self._let_go(await self._flow.take(self._asks(0, 0.0)))
                applying.result()
            finally:
                applying.cancel()

    async def _beat(self) -> None:
        """Let the flow know that a draining replica is there, and wait for what is under way."""
        self._let_go(await self._flow.take(self._asks(0, 0.0)))
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)

    def _asks(self, room: int, wait_s: float) -> Ask:
        load = {"under_way": float(len(self._tasks)), "to_deliver": float(self._finished.qsize())}
        return Ask(
            self.name, sorted(self._tasks), room, dict(self._weights.serving), load, wait_s, self._incarnation
        )

    def _let_go(self, news: News) -> None:
        for serial in news.let_go:
            if task := self._tasks.pop(serial, None):
                task.cancel()

    async def _work(self, grant: Grant) -> None:
        """A lease from its beginning until the flow has its group."""
        try:
            groups = await self._episode(grant)
        except UserError as error:
            self._say(f"draw {grant.draw} ({grant.problem}): {error}")
            await self._give_back([grant.serial], str(error), leaves=False)
        else:
            arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            await self._finished.put((Delivery(grant.serial, grant.draw, groups), arrived))
            receipt = await arrived
            if receipt.startswith("refused"):
                self._say(f"draw {grant.draw} ({grant.problem}): {receipt}")
        self._tasks.pop(grant.serial, None)

    async def _deliver_on(self) -> None:
        """Hand in what is finished, all that there is at a time."""
        while True:
            ready = [await self._finished.get()]
            while not self._finished.empty():
                ready.append(self._finished.get_nowait())
            receipts = await self._flow.deliver(
                self.name, [delivery for delivery, _ in ready], self._incarnation
            )
            for (_, arrived), receipt in zip(ready, receipts, strict=True):
                self.receipts[receipt.partition(":")[0]] += 1
                if not arrived.done():  # its lease may have been let go of
                    arrived.set_result(receipt)

    async def _give_back(self, serials: list[int], why: str, *, leaves: bool) -> None:
        await self._flow.give_back(self.name, serials, why, leaves=leaves, incarnation=self._incarnation)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._give_back([], "it ends", leaves=True)
        except (UserError, TimeoutError) as error:
            self._say(f"the flow was not told that this replica ends ({error}); it finds out by itself")

"""The flow on an event loop: a clock, those who wait for news, and a log of who waits too long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from whetstone.flow.books import Offer, Record
from whetstone.flow.desk import Delivery, Desk
from whetstone.flow.exchange import LONGEST_WAIT_S, Ask, Made, News, Told, Waiting, Wish
from whetstone.flow.refusal import FlowRefusal
from whetstone.flow.status import Activity, stalls, status_of, what_a_batch_waits_for
from whetstone.flow.turns import Turns
from whetstone.flow.usage import Usage

_TICK_S = 1.0
Say = Callable[..., None]


def _silent(event: str, **fields: Any) -> None: ...


class LiveFlow:
    """``ForReplicas`` and ``ForTrainers`` over a desk; use it on one event loop, while ``run`` is awaited."""

    def __init__(self, desk: Desk, *, say: Say = _silent, stall_s: float = 60.0) -> None:
        """``say`` is told events; ``stall_s``: who waits for longer is named there, every so often."""
        self.desk = desk
        self._say, self._stall_s = say, stall_s
        self._asking: dict[str, tuple[Ask, asyncio.Future[News]]] = {}
        self._turns = Turns()
        self._changed = asyncio.Event()
        self._now = time.monotonic
        self.trainers = {name: Activity("not there yet", self._now()) for name in desk.books.models}
        self._idle: dict[str, float] = {}
        self.usage = Usage()
        self._state = (0, 0, False)

    async def run(self) -> None:
        """Take back what is late or of the dead, and name who waits, until cancelled."""
        said = self._now()
        while True:
            await asyncio.sleep(_TICK_S)
            self._look()
            before = dict(self.desk.books.counts)
            try:
                self.desk.expire(self._now())
            except Exception as error:  # a full disk: it is tried again
                self._say("log_failed", why=str(error))
            counts = self.desk.books.counts
            if freed := {what: n for what, n in counts.items() if n != before.get(what, 0)}:
                self._say("taken_back", **freed)
                self._news()
            if self._now() - said > self._stall_s:
                said = self._now()
                for words in stalls(self.desk, self.trainers, self._idle_now(), said, self._stall_s):
                    self._say("stall", what=words)

    # -- replicas

    async def take(self, ask: Ask) -> News:
        """See ForReplicas."""
        member = self.desk.members.get(ask.replica)
        if member is not None and not member.admit(ask.replica, ask.incarnation, self._now()):
            await asyncio.sleep(min(ask.wait_s, _TICK_S))
            return News([], [], {})
        news = self._taken(ask)
        self.desk.members[ask.replica].incarnation = ask.incarnation
        if _tells(news) or ask.room <= 0 or not ask.wait_s > 0:
            return news
        future: asyncio.Future[News] = asyncio.get_running_loop().create_future()
        self._asking[ask.replica] = mine = (ask, future)
        if self.desk.may_take(ask.replica):
            self._turns.add(ask.replica)
        try:
            async with asyncio.timeout(min(ask.wait_s, LONGEST_WAIT_S, self.desk.rules.silence_s / 3)):
                return await future
        except TimeoutError:
            return news
        except asyncio.CancelledError:  # it hung up, as a process does that is killed
            if (member := self.desk.members.get(ask.replica)) is not None:
                member.cut = member.incarnation == ask.incarnation
            raise
        finally:
            if self._asking.get(ask.replica) is mine:
                del self._asking[ask.replica]
                self._turns.discard(ask.replica)

    async def deliver(self, replica: str, deliveries: Sequence[Delivery], incarnation: str = "") -> list[str]:
        """See ForReplicas. Raises UserError for a full disk: nothing, or a part, was taken in then."""
        if not self._acts(replica, incarnation):
            return ["revoked"] * len(deliveries)
        receipts: list[str] = []
        try:
            for delivery in deliveries:
                try:
                    receipts.append(self.desk.deliver(replica, delivery, self._now()))
                except FlowRefusal as refusal:
                    self._say("refused", replica=replica, why=str(refusal))
                    receipts.append(f"refused: {refusal}")
        finally:
            self._answer(replica)
            self._news()
        return receipts

    async def give_back(
        self, replica: str, serials: Sequence[int], why: str, *, leaves: bool, incarnation: str = ""
    ) -> None:
        """See ForReplicas."""
        if not self._acts(replica, incarnation):
            return
        if leaves:
            self.desk.leave(replica)
            self._say("left", replica=replica)
        else:
            self.desk.give_back(replica, serials, "failed", blamed=True)
            self._say("gave_back", replica=replica, leases=len(serials), why=why)
        self._news()

    def _acts(self, replica: str, incarnation: str) -> bool:
        """Whether no other process acts under the name."""
        member = self.desk.members.get(replica)
        return member is None or member.is_played_by(incarnation)

    def _taken(self, ask: Ask, heard: float | None = None) -> News:
        new = ask.replica not in self.desk.members
        taken = self.desk.take(
            ask.replica,
            holding=ask.holding,
            room=ask.room,
            versions={name: offer.version for name, offer in ask.serving.items()},
            load=ask.load,
            now=self._now(),
        )
        if heard is not None:
            self.desk.members[ask.replica].heard = heard
        if new:
            self._say("joined", replica=ask.replica, room=ask.room)
        if ask.replica in self.desk.books.owned:
            self._idle.pop(ask.replica, None)
        else:
            self._idle.setdefault(ask.replica, self._now())
        self._look()
        offers = {name: offer for name, offer in taken.offers.items() if offer != ask.serving[name]}
        return News(taken.leases, taken.let_go, offers)

    def _news(self, *, everybody: bool = False) -> None:
        """Something has happened: see for whom it is news."""
        self._look()
        self._changed.set()
        self._changed = asyncio.Event()
        if everybody:
            for replica in list(self._asking):
                self._answer(replica)
        self._turns.serve(self.desk, self._answer)

    def _answer(self, replica: str) -> bool:
        """Answer the question of a replica that waits, if there is something to say."""
        ask, future = self._asking.get(replica, (None, None))
        if ask is None or future is None or future.done() or replica not in self.desk.members:
            return False
        if not self._acts(replica, ask.incarnation):
            return False
        try:
            # It says nothing now: whether it is alive is shown by what it says itself.
            news = self._taken(ask, heard=self.desk.members[replica].heard)
        except Exception as error:
            future.set_exception(error)
            return True
        if _tells(news):
            future.set_result(news)
            return True
        if self.desk.may_take(replica):
            self._turns.add(replica)
        return False

    # -- trainers

    async def batch(self, wish: Wish) -> Made | Waiting:
        """See ForTrainers. Raises FlowRefusal as ``Desk.next_batch`` does."""
        found = await self.record(wish)
        if isinstance(found, Waiting):
            return found
        read = self.desk.log.read
        told = [Told(item.draw, item.reason, item.facts, read(item.place)) for item in found.items]
        return Made(wish.version, told, found.lost, found.drawn, found.unused)

    async def record(self, wish: Wish) -> Record | Waiting:
        """The same without the groups themselves: where they lie."""
        model, version = wish.model, wish.version
        until = self._now() + min(wish.wait_s, LONGEST_WAIT_S)
        if wish.saved is not None:
            self.desk.saved(model, wish.saved)
        if wish.offer is not None:
            await self.publish(model, wish.offer)
        record = self.desk.next_batch(model, version)
        if record is None:
            self._is(model, f"waits for the batch of version {version}")
            self._news()
        while record is None:
            changed = self._changed
            if not (left := until - self._now()) > 0:
                return Waiting(what_a_batch_waits_for(self.desk, model, self._now()))
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()
            record = self.desk.next_batch(model, version)
        self._is(model, f"trains on the batch of version {version}")
        self._news()
        return record

    async def publish(self, model: str, offer: Offer) -> None:
        """See ForTrainers."""
        known = self.desk.books.models.get(model)
        if known is None or offer != known.offer:
            self.desk.published(model, offer)
            self._is(model, f"has published version {offer.version}")
            self._say("published", model=model, version=offer.version)
            self._news(everybody=True)

    async def resume(self, model: str, version: int, drawn: int, unused: Sequence[int]) -> None:
        """See ForTrainers."""
        self.desk.resumed(model, version, drawn, unused)
        self._is(model, f"begins at version {version}")
        self._say("trainer", model=model, version=version)
        self._news(everybody=True)

    def _is(self, model: str, what: str) -> None:
        if self.trainers[model].what != what:
            self.trainers[model] = Activity(what, self._now())
            self._look()

    def _look(self) -> None:
        """Note for how long it was as it was."""
        replicas, sampling, training = self._state
        self.usage.look(self._now(), replicas=replicas, sampling=sampling, training=training)
        trains = any(activity.what.startswith("trains") for activity in self.trainers.values())
        self._state = (len(self.desk.members), len(self.desk.books.owned), trains)

    def _idle_now(self) -> dict[str, float]:
        """The replicas that have no prompt, and since when."""
        self._idle = {name: since for name, since in self._idle.items() if name in self.desk.members}
        return self._idle

    def status(self) -> dict[str, Any]:
        """What everybody does, waits for, and since when; plain data."""
        self._look()
        found = status_of(self.desk, self.trainers, self._idle_now(), self._now())
        return {**found, "usage": self.usage.figures()}


def _tells(news: News) -> bool:
    return bool(news.leases or news.let_go or news.offers)

"""A rollout replica: it leases prompts, runs an episode for each, and delivers the groups.

Episodes are tasks of one event loop, so replies are judged while others are generated. When told to stop, the
replica drains: it finishes its prompts, and the flow leases the rest to others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from uuid import uuid4

from whetstone.core.errors import UserError
from whetstone.environments.replies import GenerationProgress
from whetstone.rollout.group_facts import GroupFacts
from whetstone.rollout.protocol import (
    LONGEST_WAIT_S,
    DeliveryRequest,
    LeaseRequest,
    LeaseResponse,
    LeaseService,
    LeasesReturned,
)
from whetstone.rollout.scheduler import Delivery, LeaseGrant
from whetstone.rollout.state import Offer

# The interval at which a replica that drains or fetches weights reports to the flow, in seconds.
HEARTBEAT_S = 10.0
# A flow that does not answer must not delay the end of the process. Its leases then time out.
_LEAVE_S = 5.0

Groups = dict[str, tuple[GroupFacts, bytes]]

SamplingProgress = dict[str, GenerationProgress]
"""What each model has generated for a prompt so far."""

Episode = Callable[[LeaseGrant, SamplingProgress], Awaitable[Groups]]
"""Samples and judges the group of a prompt for each model, and keeps the progress up to date. Raises
UserError if there can be no group."""


class ReplicaWeights(Protocol):
    """The weights that a replica serves."""

    @property
    def serving(self) -> Mapping[str, Offer]:
        """The weights in use, by model."""
        ...

    async def apply(self, model: str, offer: Offer) -> None:
        """Fetch the weights and serve them; replies in flight continue with them. Raises UserError."""
        ...


class RolloutReplica:
    """A replica on one event loop. ``run`` works until it is drained."""

    def __init__(
        self,
        name: str,
        flow: LeaseService,
        episode: Episode,
        weights: ReplicaWeights,
        *,
        room: int,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``room``: the number of prompts that it works on at once."""
        self.name, self._flow, self._episode, self._weights = name, flow, episode, weights
        # A restarted replica has the same name. The flow must not take it for the old process.
        self._incarnation = uuid4().hex
        self._room, self._log = room, log
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._progress: dict[int, SamplingProgress] = {}
        self._finished: asyncio.Queue[tuple[Delivery, asyncio.Future[str]]] = asyncio.Queue()
        self._draining = asyncio.Event()
        self.receipts: Counter[str] = Counter()
        """Counts of the delivery receipts by kind."""

    def drain(self) -> None:
        """Request no more prompts; ``run`` ends when the current ones are delivered."""
        self._draining.set()

    async def run(self) -> None:
        """Work until drained. At any end, the remaining leases are given back.

        Raises UserError if the flow does not answer any more or belongs to another run.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                delivering = tasks.create_task(self._deliver_finished())
                try:
                    asking = tasks.create_task(self._request_leases(tasks))
                    stopping = tasks.create_task(self._draining.wait())
                    await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
                    # The long poll must not return new prompts to a replica that drains.
                    asking.cancel()
                    stopping.cancel()
                    while self._tasks:
                        # The flow must hear of a replica that drains.
                        self._cancel_revoked(await self._flow.take(self._lease_request(0, 0.0)))
                        if self._tasks:
                            await asyncio.wait(
                                self._tasks.values(),
                                timeout=HEARTBEAT_S,
                                return_when=asyncio.FIRST_COMPLETED,
                            )
                finally:
                    delivering.cancel()
        except BaseExceptionGroup as several:
            # Callers handle UserError. The other exceptions follow from the first one.
            raise several.exceptions[0] from None
        finally:
            try:
                async with asyncio.timeout(_LEAVE_S):
                    await self._give_back([], "the replica stops", leaves=True)
            except (UserError, TimeoutError) as error:
                self._log(
                    f"could not tell the flow that this replica stops ({error}); its leases will time out"
                )

    async def _request_leases(self, tasks: asyncio.TaskGroup) -> None:
        """Keep one long poll open, which the flow answers when there are new leases or weights."""
        while True:
            response = await self._flow.take(self._lease_request(self._room, LONGEST_WAIT_S))
            self._cancel_revoked(response)
            await self._apply_weights(response.weight_updates)
            # All at once and in draw order, so that the engine composes the same batch every time.
            for grant in response.leases:
                self._tasks[grant.serial] = tasks.create_task(self._run_lease(grant))

    async def _apply_weights(self, weight_updates: Mapping[str, Offer]) -> None:
        """Apply new weights. Send heartbeats meanwhile, since this may take long."""
        for model, offer in weight_updates.items():
            applying = asyncio.ensure_future(self._weights.apply(model, offer))
            try:
                while not (await asyncio.wait([applying], timeout=HEARTBEAT_S))[0]:
                    # Room 0: new prompts would still be sampled with weights that are being replaced.
                    self._cancel_revoked(await self._flow.take(self._lease_request(0, 0.0)))
                applying.result()
            finally:
                applying.cancel()

    def _lease_request(self, room: int, wait_s: float) -> LeaseRequest:
        load = {"under_way": float(len(self._tasks)), "to_deliver": float(self._finished.qsize())}
        return LeaseRequest(
            self.name,
            sorted(self._tasks),
            room,
            dict(self._weights.serving),
            load,
            wait_s,
            self._incarnation,
            self._progress_report(),
        )

    def _progress_report(self) -> dict[int, dict[str, tuple[int, int]]]:
        return {
            serial: {model: (its.tokens, its.oldest_version()) for model, its in progress.items()}
            for serial, progress in self._progress.items()
        }

    def _cancel_revoked(self, response: LeaseResponse) -> None:
        for serial in response.revoked:
            self._progress.pop(serial, None)
            if task := self._tasks.pop(serial, None):
                task.cancel()

    async def _run_lease(self, grant: LeaseGrant) -> None:
        """Run a lease until the flow has its group."""
        progress = self._progress[grant.serial] = {}
        try:
            groups = await self._episode(grant, progress)
        except UserError as error:
            self._log(f"draw {grant.draw} ({grant.problem}): {error}")
            await self._give_back([grant.serial], str(error), leaves=False)
        else:
            arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            await self._finished.put((Delivery(grant.serial, grant.draw, groups), arrived))
            receipt = await arrived
            # A refused group is not sent again: the flow would refuse it for the same reason.
            if receipt.startswith("refused"):
                self._log(f"draw {grant.draw} ({grant.problem}): {receipt}")
        self._tasks.pop(grant.serial, None)
        self._progress.pop(grant.serial, None)

    async def _deliver_finished(self) -> None:
        """Deliver finished groups, all that are ready in one request."""
        while True:
            # Groups that finish during a request are sent together in the next one.
            ready = [await self._finished.get()]
            while not self._finished.empty():
                ready.append(self._finished.get_nowait())
            deliveries = [delivery for delivery, _ in ready]
            receipts = await self._flow.deliver(DeliveryRequest(self.name, deliveries, self._incarnation))
            for (_, arrived), receipt in zip(ready, receipts, strict=True):
                self.receipts[receipt.partition(":")[0]] += 1
                # The task is cancelled if its lease was revoked meanwhile.
                if not arrived.done():
                    arrived.set_result(receipt)

    async def _give_back(self, serials: list[int], reason: str, *, leaves: bool) -> None:
        progress = self._progress_report()
        await self._flow.give_back(
            LeasesReturned(self.name, serials, reason, leaves, self._incarnation, progress)
        )

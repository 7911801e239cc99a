"""A replica that fetches new weights for long: the flow hears that it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from whetstone.rollout import replica
from whetstone.rollout.protocol import DeliveryRequest, LeaseRequest, LeaseResponse, LeasesReturned
from whetstone.rollout.replica import RolloutReplica, SamplingProgress
from whetstone.rollout.scheduler import LeaseGrant
from whetstone.rollout.state import Offer

NEW = Offer(1, "tcp:elsewhere:1", "x")


class Fetching:
    """Weights that are fetched until the flow has heard twice of the replica meanwhile."""

    def __init__(self) -> None:
        self.serving: Mapping[str, Offer] = {"policy": Offer(0)}
        self.heard = asyncio.Semaphore(0)

    async def apply(self, model: str, offer: Offer) -> None:
        for _ in range(2):
            await self.heard.acquire()
        self.serving = {model: offer}


class Hearing:
    """A flow that offers weights, and takes back a lease while they are fetched."""

    def __init__(self, weights: Fetching) -> None:
        self.asks: list[LeaseRequest] = []
        self._weights = weights
        self.worker: RolloutReplica | None = None

    async def take(self, request: LeaseRequest) -> LeaseResponse:
        await asyncio.sleep(0)
        self.asks.append(request)
        if len(self.asks) == 1:
            return LeaseResponse([LeaseGrant(1, 0, "p"), LeaseGrant(2, 1, "q")], [], {})
        if request.serving["policy"] == NEW:
            assert self.worker is not None
            self.worker.drain()
            return LeaseResponse([], list(request.holding), {})
        if request.room == 0:
            self._weights.heard.release()
        return LeaseResponse([], [1] if request.room == 0 else [], {"policy": NEW})

    async def deliver(self, request: DeliveryRequest) -> list[str]:
        return ["taken"] * len(request.deliveries)

    async def give_back(self, returned: LeasesReturned) -> None: ...


def test_a_replica_that_fetches_for_long_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "HEARTBEAT_S", 0.01)

    async def story() -> list[LeaseRequest]:
        weights = Fetching()
        flow = Hearing(weights)

        async def episode(grant: LeaseGrant, progress: SamplingProgress) -> dict[str, Any]:
            await asyncio.Event().wait()  # until it is let go of
            return {}

        flow.worker = RolloutReplica("r", flow, episode, weights, room=2)
        await asyncio.wait_for(flow.worker.run(), 60)
        return flow.asks

    asks = asyncio.run(story())
    meanwhile = [ask for ask in asks[2:] if ask.serving["policy"] == Offer(0)]
    assert len(meanwhile) >= 2
    # It has no room for what it would sample under weights that it is about to replace, and lets go.
    assert [ask.room for ask in meanwhile] == [0] * len(meanwhile)
    assert meanwhile[0].holding == [1, 2]
    assert meanwhile[-1].holding == [2]

"""The trainer's side of the weights between roles: each version is published, and the flow is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from whetstone.flow.remote import RemoteFlow
from whetstone.weights.published import PublishedWeights


class PublishingServer:
    """The ``Server`` of a trainer whose replicas are elsewhere."""

    def __init__(self, published: PublishedWeights, flow: RemoteFlow) -> None:
        self._published, self._flow = published, flow
        self.version = -1

    async def update_weights(self, weights: Iterable[tuple[str, object]], version: int) -> None:
        """See Server. The replicas are told when they can fetch them."""
        offer = await asyncio.wrap_future(self._published.publish(version, weights))
        await self._flow.publish(offer)
        self.version = version

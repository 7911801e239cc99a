"""The trainer's side of the weights between roles: each version is published, and the flow is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from whetstone.weights.offer import Offer
from whetstone.weights.published import PublishedWeights


class PublishingServer:
    """The ``Server`` of a trainer whose replicas are elsewhere.

    parts: the weights as this rank has them. tell: has the flow know of an offer.
    """

    def __init__(
        self,
        published: PublishedWeights,
        parts: Callable[[], Iterable[tuple[str, object]]],
        tell: Callable[[Offer], Awaitable[None]],
    ) -> None:
        self._published, self._parts, self._tell = published, parts, tell
        self.version = -1

    async def update_weights(self, weights: Iterable[tuple[str, object]], version: int) -> None:
        """See Server. The replicas are told when they can fetch them.

        ``weights`` stay unread: put together on every rank they would be a copy of the model on each.
        """
        offer = await asyncio.wrap_future(self._published.publish(version, self._parts()))
        await self._tell(offer)
        self.version = version

"""Sampling and learning on the same devices, in turn."""

from __future__ import annotations

from typing import Any

from whetstone.engine.engine import Sleeper
from whetstone.flow.flow import Flow, FlowBatch


class SharedDevices:
    """A Flow that lets ``engine`` sleep once a batch is there; the weights made of the batch wake it."""

    def __init__(self, flow: Flow, engine: Sleeper) -> None:
        self._flow = flow
        self._engine = engine

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow."""
        drawn = await self._flow.next_batch(version)
        await self._engine.sleep()
        return drawn

    def state(self) -> dict[str, Any]:
        """See Flow."""
        return self._flow.state()

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow."""
        self._flow.restore(state)

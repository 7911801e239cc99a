"""The interface of a flow for the trainer: batches, and a state that can be saved."""

from __future__ import annotations

from typing import Any, Protocol

from whetstone.core.sample import Batch, Group


class ProcessGroup(Protocol):
    """The processes that sample a batch together. This process is number ``rank`` of ``size``."""

    rank: int
    size: int

    def gather(self, data: bytes, description: str) -> list[bytes]:
        """Return the bytes of every process, in rank order, on every process. ``description`` names the wait
        in errors."""
        ...


class Flow(Protocol):
    """Hands out batches of groups to train on."""

    async def next_batch(self, version: int) -> FlowBatch:
        """Return the next batch, sampled with weights of ``version``."""
        ...

    def state(self) -> dict[str, Any]:
        """Return plain data from which ``restore`` continues exactly."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved ``state``."""
        ...


class FlowBatch:
    """A batch to train on, and all groups that were sampled for it, including the dropped ones."""

    def __init__(self, batch: Batch, sampled: list[Group]) -> None:
        self.batch = batch
        self.sampled = sampled

"""The interface of a flow for the trainer: batches, and a state that can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from whetstone.core.sample import Batch, Group


class Flow(Protocol):
    """Hands out batches of groups to train on."""

    async def next_batch(self, version: int) -> FlowBatch:
        """Return the next batch, sampled with weights of ``version``."""
        ...

    async def report(self) -> FlowReport:
        """Return what is known after the step of the last batch."""
        ...

    def state(self) -> dict[str, Any]:
        """Return plain data from which ``restore`` continues exactly."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved ``state``."""
        ...


class FlowReport(Struct, frozen=True):
    """What a flow reports after a step. It depends on the clock and on faults.

    tokens: the account of all tokens so far, see ``TokenLedger.totals``. roles: the busy shares of other
    roles during the step. composition: what the composition of batches has cost so far, by metric.
    """

    tokens: Mapping[str, int] = {}
    roles: Mapping[str, float] = {}
    composition: Mapping[str, float] = {}


class FlowBatch:
    """A batch to train on, and all groups that were sampled for it, including the dropped ones."""

    def __init__(self, batch: Batch, sampled: list[Group]) -> None:
        self.batch = batch
        self.sampled = sampled

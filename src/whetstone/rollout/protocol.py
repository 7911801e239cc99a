"""The interface between a flow and its replicas and trainers, in one process or over HTTP.

The structs are also the messages on the wire; see ``service/wire``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from whetstone.core.sample import Batch, Group
from whetstone.rollout.group_facts import GroupFacts
from whetstone.rollout.scheduler import Delivery, LeaseGrant
from whetstone.rollout.state import Offer

# The longest time that a request waits for an answer. A client repeats the request to wait longer, so both
# sides know that the other is alive.
LONGEST_WAIT_S = 20.0


class LeaseRequest(Struct, frozen=True):
    """A replica requests prompts. ``holding``: its leases; ``room``: the most prompts that it holds, 0 if it
    drains.

    serving: the weights of each model that it serves. load: figures for the status. wait_s: the longest wait
    for an answer. incarnation: the process; unique even if two processes use the same name. progress: see
    ``scheduler.Progress``.
    """

    replica: str
    holding: list[int]
    room: int
    serving: dict[str, Offer]
    load: dict[str, float] = {}
    wait_s: float = 0.0
    incarnation: str = ""
    progress: dict[int, dict[str, tuple[int, int]]] = {}


class LeaseResponse(Struct, frozen=True):
    """New leases, revoked leases, and weights that replace those that the replica serves."""

    leases: list[LeaseGrant]
    revoked: list[int]
    weight_updates: dict[str, Offer]


class DeliveryRequest(Struct, frozen=True):
    """A replica delivers finished prompts."""

    replica: str
    deliveries: list[Delivery]
    incarnation: str = ""


class LeasesReturned(Struct, frozen=True):
    """A replica ends leases without a group. ``leaves``: end all of them, and remove the replica."""

    replica: str
    serials: list[int]
    reason: str
    leaves: bool
    incarnation: str = ""
    progress: dict[int, dict[str, tuple[int, int]]] = {}


class TrainerRequest(Struct, frozen=True):
    """A trainer requests the batch that it trains on at ``version``.

    offer: the weights that it has published last, repeated in case the flow lost them; None before the first.
    saved: the version of its last checkpoint.
    """

    model: str
    version: int
    offer: Offer | None = None
    saved: int | None = None
    wait_s: float = 0.0


class BatchGroup(Struct, frozen=True):
    """A group of a batch. ``reason``: why it is not trained on; empty if it is."""

    draw: int
    reason: str
    facts: GroupFacts
    group: bytes


class BatchResponse(Struct, tag="batch", frozen=True):
    """A batch: all groups that were sampled for it, in draw order; see ``state.BatchRecord``."""

    version: int
    groups: list[BatchGroup]
    lost: dict[str, int]
    drawn: int
    unused: list[int]
    oldest: int | None = None


class BatchPending(Struct, tag="pending", frozen=True):
    """There is no batch yet; ``reason`` says what it waits for."""

    reason: str


class LeaseService(Protocol):
    """The flow's interface for replicas. Every call can be repeated."""

    async def take(self, request: LeaseRequest) -> LeaseResponse:
        """Return new leases as soon as there are some, or an empty response after ``request.wait_s``.

        Raises FlowRefusal if another process acts under the same name.
        """
        ...

    async def deliver(self, request: DeliveryRequest) -> list[str]:
        """Deliver finished prompts. Returns for each ``taken``, ``duplicate``, ``revoked``, or why it is
        refused."""
        ...

    async def give_back(self, returned: LeasesReturned) -> None:
        """End leases without a group."""
        ...


class BatchService(Protocol):
    """The flow's interface for trainers. Every call can be repeated."""

    async def batch(self, request: TrainerRequest) -> BatchResponse | BatchPending:
        """Return the batch for a version, after at most ``request.wait_s``."""
        ...

    async def publish(self, model: str, offer: Offer) -> None:
        """Announce weights that replicas can fetch."""
        ...

    async def resume(self, model: str, version: int, drawn: int, unused: Sequence[int]) -> None:
        """Announce that a trainer is at ``version``; see ``FlowScheduler.resume``."""
        ...


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

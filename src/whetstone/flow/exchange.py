"""What replicas and trainers say to a flow and hear from it: one interface, in this process or over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from whetstone.flow.books import Offer
from whetstone.flow.desk import Delivery, Grant
from whetstone.flow.facts import Facts

LONGEST_WAIT_S = 20.0
"""No answer is waited for longer; who wants to wait on asks again, and both know that the other is there."""


class Ask(Struct, frozen=True):
    """A replica asks for prompts. ``holding``: its leases; ``room``: for how many in all, 0 when it drains.

    serving: the weights of each model that it serves. load: numbers for whoever looks. wait_s: how long it
    waits for news. incarnation: which process it is; no two have the same, whatever their names.
    """

    replica: str
    holding: list[int]
    room: int
    serving: dict[str, Offer]
    load: dict[str, float] = {}
    wait_s: float = 0.0
    incarnation: str = ""


class News(Struct, frozen=True):
    """New leases, leases that are none any more, and weights to serve in place of those that are served."""

    leases: list[Grant]
    let_go: list[int]
    offers: dict[str, Offer]


class Wish(Struct, frozen=True):
    """A trainer asks for the batch that it trains on at ``version``.

    offer: the weights that it has published, said again for a flow that may have lost it; None before it has
    any. saved: a checkpoint holds this version.
    """

    model: str
    version: int
    offer: Offer | None = None
    saved: int | None = None
    wait_s: float = 0.0


class Told(Struct, frozen=True):
    """A group as a batch tells of it. ``reason``: why it is not trained on; empty where it is."""

    draw: int
    reason: str
    facts: Facts
    group: bytes


class Made(Struct, frozen=True):
    """A batch: every group that was sampled for it, in the order of draws; see ``books.Record``."""

    version: int
    told: list[Told]
    lost: dict[str, int]
    drawn: int
    unused: list[int]


class Waiting(Struct, frozen=True):
    """There is no batch yet: what it waits for, in words."""

    why: str


class ForReplicas(Protocol):
    """What a flow is to those who sample. Every call can be repeated."""

    async def take(self, ask: Ask) -> News:
        """What is new, as soon as there is something, or nothing after ``ask.wait_s``.

        Raises FlowRefusal when another process acts under the same name.
        """
        ...

    async def deliver(self, replica: str, deliveries: Sequence[Delivery], incarnation: str = "") -> list[str]:
        """Hand in finished prompts: for each ``taken``, ``duplicate``, ``revoked``, or why it is refused."""
        ...

    async def give_back(
        self, replica: str, serials: Sequence[int], why: str, *, leaves: bool, incarnation: str = ""
    ) -> None:
        """Leases end without a group; ``leaves``: all of them, and the replica is gone."""
        ...


class ForTrainers(Protocol):
    """What a flow is to those who train. Every call can be repeated."""

    async def batch(self, wish: Wish) -> Made | Waiting:
        """The batch for a version, waited for at most ``wish.wait_s``."""
        ...

    async def publish(self, model: str, offer: Offer) -> None:
        """Weights are there to be fetched."""
        ...

    async def resume(self, model: str, version: int, drawn: int, unused: Sequence[int]) -> None:
        """A trainer is at ``version``; see ``Desk.resumed``."""
        ...

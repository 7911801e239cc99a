"""What the trainer sees of a flow that samples beside it: the ``Flow`` of the synchronous loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from whetstone.errors import UserError
from whetstone.flow.books import Offer
from whetstone.flow.exchange import LONGEST_WAIT_S, ForTrainers, Made, Told, Waiting, Wish
from whetstone.flow.facts import unpacked
from whetstone.flow.flow import FlowBatch
from whetstone.sample import Batch, Group

WAIT_S = 3600.0
SAID_EVERY_S = 60.0
"""What a batch waits for is said when it changes, and so often while it does not."""


class RemoteFlow:
    """Batches of one model from a flow, in another process or in this one.

    What a trainer's checkpoint holds of it is where it is in the draws: the flow itself remembers every batch
    since the last checkpoints, so that a trainer that goes back to one is given the same batches again.
    """

    def __init__(
        self,
        flow: ForTrainers,
        model: str = "policy",
        *,
        wait_s: float = WAIT_S,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """wait_s: how long a batch is waited for at most. say: told what it waits for, now and then."""
        self._flow, self._model, self._wait_s, self._say = flow, model, wait_s, say
        self._place: dict[str, Any] = {"drawn": 0, "unused": []}
        self._saved: int | None = None
        self._version = -1
        self._offer: Offer | None = None
        self._begun = False

    async def publish(self, offer: Offer) -> None:
        """Weights are there for the replicas."""
        await self._begin(offer.version)
        self._offer = offer
        await self._flow.publish(self._model, offer)

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow. Raises UserError when there is no batch within ``wait_s``, saying what it waited for, and
        FlowRefusal when the flow cannot make one."""
        await self._begin(version)
        began, waited, why, said = time.monotonic(), 0.0, "", 0.0
        while True:
            patience = min(LONGEST_WAIT_S, max(0.0, self._wait_s - waited))
            found = await self._flow.batch(Wish(self._model, version, self._offer, self._saved, patience))
            if not isinstance(found, Waiting):
                break
            waited = time.monotonic() - began
            if waited >= self._wait_s:
                raise UserError(
                    f"no batch for version {version} in {waited:.0f} s: {found.why}; see what the replicas "
                    "do (`/v1/status` of the flow), or wait longer (`trainer.wait_s`)"
                )
            if found.why != why or waited - said >= SAID_EVERY_S:
                why, said = found.why, waited
                self._say(f"waiting for the batch of version {version}: {why}")
        self._version = version
        self._place = {"drawn": found.drawn, "unused": found.unused}
        return flow_batch(found)

    def state(self) -> dict[str, Any]:
        """See Flow: how many prompts were drawn, and which of them no batch had used."""
        # What is being saved is the version after the last batch; the flow is told with the next wish, when
        # the checkpoint is on the disk.
        self._saved = self._version + 1
        return dict(self._place)

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow. A state of ``LocalFlow`` is taken, too."""
        self._place = {"drawn": int(state["drawn"]), "unused": list(state.get("unused", []))}
        self._begun = False

    async def _begin(self, version: int) -> None:
        """Tell the flow, once, at which version this trainer begins."""
        if not self._begun:
            await self._flow.resume(self._model, version, self._place["drawn"], self._place["unused"])
            self._begun = True


def flow_batch(made: Made) -> FlowBatch:
    """A batch as the trainer takes it: groups stamped with what the flow knows of them."""
    groups = [(told, _stamped(told, made.version)) for told in made.told]
    dropped = dict(made.lost)
    for told in made.told:
        if told.reason:
            dropped[told.reason] = dropped.get(told.reason, 0) + 1
    kept = [group for told, group in groups if not told.reason]
    return FlowBatch(Batch(kept, dict(sorted(dropped.items()))), [group for _, group in groups])


def _stamped(told: Told, version: int) -> Group:
    group = unpacked(told.group)
    mean, deviation = told.facts.statistics()
    behind = None if told.facts.oldest is None else version - told.facts.oldest
    stamp = {"draw": told.draw, "reward_mean": mean, "reward_std": deviation, "staleness": behind}
    return replace(group, meta={**group.meta, **stamp})

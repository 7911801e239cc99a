"""A ``Flow`` whose batches come from a flow service, for the trainer of an asynchronous run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from whetstone.core.errors import UserError
from whetstone.core.sample import Batch, Group
from whetstone.rollout.group_facts import decode_group
from whetstone.rollout.protocol import (
    LONGEST_WAIT_S,
    BatchGroup,
    BatchPending,
    BatchResponse,
    BatchService,
    FlowBatch,
    TrainerRequest,
)
from whetstone.rollout.state import Offer

WAIT_S = 3600.0
# The reason for a wait is logged when it changes, and otherwise at this interval in seconds.
LOG_INTERVAL_S = 60.0


class RemoteFlow:
    """Batches of one model from a flow in another process or in this one.

    A trainer's checkpoint only holds its position in the draws. The flow keeps every batch since the last
    checkpoints, so a trainer that returns to a checkpoint gets the same batches again.
    """

    def __init__(
        self,
        flow: BatchService,
        model: str = "policy",
        *,
        wait_s: float = WAIT_S,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """wait_s: the longest wait for a batch, in seconds. log: called with the reason for a wait."""
        self._flow, self._model, self._wait_s, self._log = flow, model, wait_s, log
        self._position: dict[str, Any] = {"drawn": 0, "unused": []}
        self._saved: int | None = None
        self._version = -1
        self._offer: Offer | None = None
        self._resumed = False

    async def publish(self, offer: Offer) -> None:
        """Announce weights that replicas can fetch."""
        await self._resume_once(offer.version)
        self._offer = offer
        await self._flow.publish(self._model, offer)

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow. Raises UserError if there is no batch within ``wait_s``, with the reason, and FlowRefusal
        if the flow cannot compose one."""
        await self._resume_once(version)
        began, waited, reason, logged_at = time.monotonic(), 0.0, "", 0.0
        while True:
            # Short requests show that the flow is alive, and return the reason for the wait.
            patience = min(LONGEST_WAIT_S, max(0.0, self._wait_s - waited))
            response = await self._flow.batch(
                TrainerRequest(self._model, version, self._offer, self._saved, patience)
            )
            if not isinstance(response, BatchPending):
                break
            waited = time.monotonic() - began
            if waited >= self._wait_s:
                raise UserError(
                    f"no batch for version {version} in {waited:.0f} s: {response.reason}; see what "
                    "the replicas "
                    "do (`/v1/status` of the flow), or wait longer (`trainer.wait_s`)"
                )
            # The same reason is logged again only after a while.
            if response.reason != reason or waited - logged_at >= LOG_INTERVAL_S:
                reason, logged_at = response.reason, waited
                self._log(f"waiting for the batch of version {version}: {reason}")
        self._version = version
        self._position = {"drawn": response.drawn, "unused": response.unused}
        return flow_batch(response)

    def state(self) -> dict[str, Any]:
        """See Flow: the number of drawn prompts, and the draws that no batch has used."""
        # The checkpoint holds the version after the last batch. The next request reports it to the flow,
        # because only then the checkpoint is on disk.
        self._saved = self._version + 1
        return dict(self._position)

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow. Accepts a state of ``LocalFlow`` too."""
        self._position = {"drawn": int(state["drawn"]), "unused": list(state.get("unused", []))}
        self._resumed = False

    async def _resume_once(self, version: int) -> None:
        """Tell the flow, once, at which version this trainer starts."""
        if not self._resumed:
            await self._flow.resume(self._model, version, self._position["drawn"], self._position["unused"])
            self._resumed = True


def flow_batch(response: BatchResponse) -> FlowBatch:
    """Convert a batch response to a FlowBatch, with the flow's facts added to each group."""
    groups = [(item, _with_facts(item, response.version)) for item in response.groups]
    dropped = dict(response.lost)
    for item in response.groups:
        if item.reason:
            dropped[item.reason] = dropped.get(item.reason, 0) + 1
    kept = [group for item, group in groups if not item.reason]
    return FlowBatch(
        Batch(kept, dict(sorted(dropped.items())), response.oldest), [group for _, group in groups]
    )


def _with_facts(item: BatchGroup, version: int) -> Group:
    group = decode_group(item.group)
    mean, deviation = item.facts.statistics()
    staleness = None if item.facts.oldest is None else version - item.facts.oldest
    stamp = {"draw": item.draw, "reward_mean": mean, "reward_std": deviation, "staleness": staleness}
    return replace(group, meta={**group.meta, **stamp})

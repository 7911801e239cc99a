"""The batches of a flow for a trainer: its first rank requests them and broadcasts them to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.sample import Batch
from whetstone.report.audit import KeptAudit, keep_audit
from whetstone.rollout.protocol import FlowBatch, FlowReport
from whetstone.rollout.remote_flow import RemoteFlow
from whetstone.rollout.service.client import FlowClient
from whetstone.rollout.status import shares
from whetstone.run.recipe import Recipe
from whetstone.run.run_dir import flow_url_of, write_flow_url
from whetstone.trainer.loop import RunDrained
from whetstone.trainer.ranks import Ranks
from whetstone.weights.offer import Offer

_POLL_S = 1.0
# Interval at which the first rank sends to the waiting ranks, in seconds. A wait may last longer than a
# connection's timeout.
_KEEPALIVE_S = 5.0
_DRAINED = b"drained"


class DrainableFlow(RemoteFlow):
    """A RemoteFlow that can be drained, and that reports the usage of other roles."""

    def __init__(self, client: FlowClient, model: str, recipe: Recipe, log: Callable[[str], None]) -> None:
        super().__init__(client, model, wait_s=recipe.trainer.wait_s, log=log)
        self._client, self._log_line, self._run = client, log, recipe.run_dir()
        self._draining = asyncio.Event()
        self._before: dict[str, float] = {}
        self._trained = 0

    def drain(self) -> None:
        """Request no further batch."""
        if not self._draining.is_set():
            self._log_line("draining: a checkpoint of the last complete step will be saved")
        self._draining.set()

    async def publish(self, offer: Offer) -> None:
        """See RemoteFlow. The first call comes after the run has started to write its files."""
        await super().publish(offer)
        if flow_url_of(self._run) != self._client.url:
            write_flow_url(self._run, self._client.url)

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow. Raises RunDrained."""
        self._trained = version + 1
        drains = asyncio.ensure_future(self._draining.wait())
        batch = asyncio.ensure_future(super().next_batch(version))
        try:
            await asyncio.wait((drains, batch), return_when=asyncio.FIRST_COMPLETED)
            if self._draining.is_set():
                raise RunDrained
            return batch.result()
        finally:
            for task in (drains, batch):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def wait_for_other_trainers(self, steps: int) -> None:
        """Wait until the trainers of the other models have made their last step, or this one is drained.

        Replicas that sample for them need the weights of all models.
        """
        # The flow has ended, and this model needs nothing from it.
        with suppress(UserError):
            while not self._draining.is_set():
                models = (await self._client.status())["models"].values()
                if all(its["version"] >= steps for its in models):
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await self._draining.wait()

    async def report(self) -> FlowReport:
        """See Flow. The busy shares are those since the last call. Also saves the flow's audit."""
        found = await self._client.status()
        its = found["models"][self._model]
        keep_audit(self._run, KeptAudit(self._trained, its["audit"], its["accounts"]))
        before, self._before = self._before, found["usage"]
        return FlowReport(its["tokens"], shares(before, found["usage"]), its["composition"])


class RankBroadcastFlow:
    """The same flow on every rank. Only the first rank has ``flow``; it broadcasts the results.

    The ranks call each method together.
    """

    def __init__(self, ranks: Ranks, flow: DrainableFlow | None) -> None:
        self._ranks, self._flow = ranks, flow

    async def publish(self, offer: Offer) -> None:
        """Announce weights for the replicas."""
        if self._flow is not None:
            await self._flow.publish(offer)

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow. Raises RunDrained on every rank. Only the first rank gets all sampled groups."""
        if self._flow is not None and self._ranks.size == 1:
            return await self._flow.next_batch(version)
        found: list[FlowBatch] = []

        async def ask(asked: DrainableFlow) -> bytes:
            try:
                found.append(await asked.next_batch(version))
            except RunDrained:
                return _DRAINED
            return msgspec.msgpack.encode(found[0].batch)

        result = await self._from_first(ask, f"the batch of version {version}")
        if result == _DRAINED:
            raise RunDrained
        return found[0] if found else FlowBatch(msgspec.msgpack.decode(result, type=Batch), [])

    async def wait_for_other_trainers(self, steps: int) -> None:
        """See DrainableFlow. The other ranks wait too, because each serves its part of the weights."""

        async def stay(asked: DrainableFlow) -> bytes:
            await asked.wait_for_other_trainers(steps)
            return b"through"

        await self._from_first(stay, "the trainers of the other models")

    def state(self) -> dict[str, Any]:
        """See Flow. Only the first rank's state is saved."""
        return {} if self._flow is None else self._flow.state()

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow."""
        if self._flow is not None:
            self._flow.restore(state)

    async def report(self) -> FlowReport:
        """See DrainableFlow; empty on the other ranks."""
        return FlowReport() if self._flow is None else await self._flow.report()

    async def _from_first(self, call: Callable[[DrainableFlow], Awaitable[bytes]], description: str) -> bytes:
        """Broadcast the non-empty result of ``call`` on the first rank, however long it takes."""
        pending = None if self._flow is None else asyncio.ensure_future(call(self._flow))
        try:
            result = b""
            while not result:
                own = b""
                if pending is not None:
                    await asyncio.wait((pending,), timeout=_KEEPALIVE_S)
                    own = pending.result() if pending.done() else b""
                result = self._ranks.gather(own, description)[0]
                # Signal handlers run between awaits.
                await asyncio.sleep(0)
            return result
        finally:
            if pending is not None:
                pending.cancel()
                await asyncio.gather(pending, return_exceptions=True)

"""The batches of a flow, as its trainer takes them: asked for by its first rank, and told to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from whetstone.errors import UserError
from whetstone.flow.flow import FlowBatch
from whetstone.flow.remote import RemoteFlow
from whetstone.flow.service.client import FlowClient
from whetstone.flow.usage import shares
from whetstone.launch.recipe import Recipe
from whetstone.launch.roles.told import flow_url_of, write_flow_url
from whetstone.report.audit import KeptAudit, keep_audit
from whetstone.sample import Batch
from whetstone.trainer.loop import Drained
from whetstone.trainer.ranks import Ranks
from whetstone.weights.offer import Offer

_LOOK_EVERY_S = 1.0
_WORD_EVERY_S = 5.0
"""So often a rank that waits for the first hears of it, whose patience may be longer than a connection's."""
_DRAINED = b"drained"


class Asked(RemoteFlow):
    """The batches of the flow, until this trainer is told to end; and what other roles did meanwhile."""

    def __init__(self, client: FlowClient, model: str, recipe: Recipe, say: Callable[[str], None]) -> None:
        super().__init__(client, model, wait_s=recipe.trainer.wait_s, say=say)
        self._client, self._tell, self._run = client, say, recipe.run_dir()
        self._drains = asyncio.Event()
        self._before: dict[str, float] = {}
        self._trained = 0

    def drain(self) -> None:
        """Give no batch any more."""
        if not self._drains.is_set():
            self._tell("draining: a checkpoint is made of the step that is complete")
        self._drains.set()

    async def publish(self, offer: Offer) -> None:
        """See RemoteFlow. The first time is when the run has begun to write its files."""
        await super().publish(offer)
        if flow_url_of(self._run) != self._client.url:
            write_flow_url(self._run, self._client.url)

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow. Raises Drained."""
        self._trained = version + 1
        drains = asyncio.ensure_future(self._drains.wait())
        batch = asyncio.ensure_future(super().next_batch(version))
        try:
            await asyncio.wait((drains, batch), return_when=asyncio.FIRST_COMPLETED)
            if self._drains.is_set():
                raise Drained
            return batch.result()
        finally:
            for task in (drains, batch):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def end_together(self, steps: int) -> None:
        """Stay until the trainers of the other models have made their last step, too, or this one is to end:
        replicas that sample for them need the weights of all."""
        with suppress(UserError):  # the flow is gone, and this model has all that it needs
            while not self._drains.is_set():
                models = (await self._client.status())["models"].values()
                if all(its["version"] >= steps for its in models):
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_EVERY_S):
                        await self._drains.wait()

    async def usage(self) -> dict[str, float]:
        """Which shares of the time since the last call the roles worked. Keeps the audit of the flow, too."""
        found = await self._client.status()
        its = found["models"][self._model]
        keep_audit(self._run, KeptAudit(self._trained, its["audit"], its["accounts"]))
        before, self._before = self._before, found["usage"]
        return shares(before, found["usage"])


class Told:
    """The same on every rank of a trainer. ``asked`` is the first one's alone; the others have what it says.

    The ranks call each method together.
    """

    def __init__(self, ranks: Ranks, asked: Asked | None) -> None:
        self._ranks, self._asked = ranks, asked

    async def publish(self, offer: Offer) -> None:
        """Weights are there for the replicas."""
        if self._asked is not None:
            await self._asked.publish(offer)

    async def next_batch(self, version: int) -> FlowBatch:
        """See Flow. Raises Drained on every rank; the first alone has all that was sampled for the batch."""
        if self._asked is not None and self._ranks.size == 1:
            return await self._asked.next_batch(version)
        found: list[FlowBatch] = []

        async def ask(asked: Asked) -> bytes:
            try:
                found.append(await asked.next_batch(version))
            except Drained:
                return _DRAINED
            return msgspec.msgpack.encode(found[0].batch)

        told = await self._from_first(ask, f"the batch of version {version}")
        if told == _DRAINED:
            raise Drained
        return found[0] if found else FlowBatch(msgspec.msgpack.decode(told, type=Batch), [])

    async def end_together(self, steps: int) -> None:
        """See Asked. The other ranks stay, too: each serves its part of the weights."""

        async def stay(asked: Asked) -> bytes:
            await asked.end_together(steps)
            return b"through"

        await self._from_first(stay, "the trainers of the other models")

    def state(self) -> dict[str, Any]:
        """See Flow. What a checkpoint holds is the first rank's."""
        return {} if self._asked is None else self._asked.state()

    def restore(self, state: dict[str, Any]) -> None:
        """See Flow."""
        if self._asked is not None:
            self._asked.restore(state)

    async def usage(self) -> dict[str, float]:
        """See Asked; the first rank writes it down."""
        return {} if self._asked is None else await self._asked.usage()

    async def _from_first(self, call: Callable[[Asked], Awaitable[bytes]], what: str) -> bytes:
        """What ``call`` gives on the first rank, which is not empty, however long that takes."""
        asking = None if self._asked is None else asyncio.ensure_future(call(self._asked))
        try:
            told = b""
            while not told:
                mine = b""
                if asking is not None:
                    await asyncio.wait((asking,), timeout=_WORD_EVERY_S)
                    mine = asking.result() if asking.done() else b""
                told = self._ranks.gather(mine, what)[0]
                await asyncio.sleep(0)  # a signal is heard
            return told
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

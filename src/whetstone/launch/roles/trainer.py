"""``whetstone role trainer``: the trainer of a run whose batches come from a flow.

It goes by the code of a run in one process (``launch/local.py``), with other parts: batches are asked for,
weights are published, and an engine exists only while this process evaluates.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from whetstone.engine.engine import Engine
from whetstone.engine.factory import build_engine
from whetstone.engine.loading import LoadedModel
from whetstone.engine.on_paper import OnPaper
from whetstone.engine.settings import SERVERS
from whetstone.errors import UserError, did_you_mean
from whetstone.flow.flow import FlowBatch
from whetstone.flow.remote import RemoteFlow
from whetstone.flow.service.client import FlowClient
from whetstone.flow.usage import shares
from whetstone.launch.ahead import Ahead, look_at_all
from whetstone.launch.display import Display
from whetstone.launch.local import RunSummary, train
from whetstone.launch.parts import Parts, trainer_of
from whetstone.launch.recipe import Recipe
from whetstone.launch.roles.ends import on_signals
from whetstone.launch.roles.told import flow_url_of, write_flow_url
from whetstone.launch.roles.weights import PublishingServer
from whetstone.launch.roles.where import own_token, reachable
from whetstone.launch.roles.whose import flow_section, run_identity
from whetstone.trainer.loop import Drained
from whetstone.trainer.ranks import Ranks
from whetstone.weights.offer import Offer
from whetstone.weights.published import PublishedWeights
from whetstone.weights.settings import WeightsSection
from whetstone.weights.tcp_server import check_listening

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge


_LOOK_EVERY_S = 1.0


def train_for(
    recipe: Recipe, url: str, display: Display, *, model: str | None = None, threads: int = 0
) -> RunSummary:
    """Train to the last step on the batches of the flow at ``url``, from the newest checkpoint on.

    model: which of the run's; the first unless given. threads: of this process, where the recipe says
    nothing. Raises Drained when it was told to end, after a checkpoint of the step that it was in, and
    UserError as ``train`` does, for a flow that is not there or another run's, where no batch comes, and for
    a model that the run has not.
    """
    name = _one_of(recipe.workflow.models, model)
    aheads = look_at_all(recipe, display.say)
    weights = flow_section(aheads[name].recipe).weights
    if weights.folder and name != next(iter(aheads)):  # beside those of the first
        weights = weights.model_copy(update={"folder": f"{weights.folder}/{name}"})

    @asynccontextmanager
    async def join(ahead: Ahead, judge: RunJudge, policy: LoadedModel, ranks: Ranks) -> AsyncGenerator[Parts]:
        if ranks.size > 1:
            raise UserError("a trainer of a flow is one process; start it without torchrun")
        client = FlowClient(url, run_identity(aheads), say=display.say)
        try:
            batches = _Batches(client, name, ahead.recipe, display.say)
            mine = asyncio.current_task()
            assert mine is not None
            on_signals(batches.drain, mine.cancel)
            trainer = trainer_of(ahead.recipe, policy, ranks)
            serving = (
                partial(_on_paper, ahead.recipe, policy.model)
                if _needs_no_engine(ahead)
                else partial(_serving, ahead.recipe, trainer.plain_copy, policy.tokenizer)
            )
            with PublishedWeights(
                name,
                weights,
                dtype=trainer.dtype,
                token=own_token(),
                folder=ahead.recipe.run_dir() / "weights",
                reach=partial(reachable, url),
            ) as published:
                server = PublishingServer(published, batches)
                yield Parts(ranks, judge, policy, trainer, batches, server, serving, batches.usage)
                if len(aheads) > 1:
                    await batches.end_together(ahead.recipe.trainer.steps)
        finally:
            await client.close()

    ahead = aheads[name]
    asyncio.run(_agreed(url, aheads, weights, display.say))
    return train(ahead.recipe, display, join=join, threads=threads, look=lambda recipe, say: ahead)


async def _agreed(
    url: str, aheads: Mapping[str, Ahead], weights: WeightsSection, say: Callable[[str], None]
) -> None:
    """Ask who may refuse this trainer before a model is loaded: the flow, and the address of its weights."""
    if weights.by == "tcp":
        check_listening(weights.host, weights.port, own_token())
    client = FlowClient(url, run_identity(aheads), say=say)
    try:
        await client.hello()
    finally:
        await client.close()


def _one_of(models: Sequence[str], model: str | None) -> str:
    if model is None or model in models:
        return model or models[0]
    raise UserError(f"--model: unknown model `{model}`{did_you_mean(model, models)} ({', '.join(models)})")


def _needs_no_engine(ahead: Ahead) -> bool:
    """Whether nothing would be asked of an engine here but the lengths of prompts: of a second model, which
    has nobody else's prompts and is not evaluated; where servers elsewhere sample and evaluate."""
    recipe = ahead.recipe
    elsewhere = recipe.evaluation.process == "separate" and recipe.engine.kind in SERVERS
    return elsewhere or not (ahead.measured or ahead.sets.train)


@asynccontextmanager
async def _serving(recipe: Recipe, copy: Callable[[], Any], tokenizer: Any) -> AsyncGenerator[Engine]:
    """An engine of its own with the weights as they are now, for as long as it is needed."""
    engine = build_engine(recipe.engine, copy, tokenizer)
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def _on_paper(recipe: Recipe, model: Any) -> AsyncGenerator[Engine]:
    """What checks prompts in the place of a server, which this process needs for nothing else."""
    yield OnPaper(model, recipe.engine.options.get("max_context"))


class _Batches(RemoteFlow):
    """The batches of the flow, until this trainer is told to end; and what other roles did meanwhile."""

    def __init__(self, client: FlowClient, model: str, recipe: Recipe, say: Callable[[str], None]) -> None:
        super().__init__(client, model, wait_s=recipe.trainer.wait_s, say=say)
        self._client, self._tell, self._run = client, say, recipe.run_dir()
        self._drains = asyncio.Event()
        self._before: dict[str, float] = {}

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
        """Which shares of the time since the last call the roles worked."""
        now = (await self._client.status())["usage"]
        before, self._before = self._before, now
        return shares(before, now)

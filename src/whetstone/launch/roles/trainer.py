"""``whetstone role trainer``: the trainer of a run whose batches come from a flow.

It goes by the code of a run in one process (``launch/local.py``), with other parts: batches are asked for,
weights are published, and an engine exists only while this process evaluates.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from whetstone.engine.engine import Engine
from whetstone.engine.factory import build_engine
from whetstone.engine.loading import LoadedModel
from whetstone.engine.on_paper import OnPaper
from whetstone.flow.service.client import FlowClient
from whetstone.launch.ahead import Ahead, look_at_all
from whetstone.launch.display import Display
from whetstone.launch.local import RunSummary, train
from whetstone.launch.parts import Parts, trainer_of
from whetstone.launch.recipe import Recipe
from whetstone.launch.roles.batches import Asked, Told
from whetstone.launch.roles.ends import on_signals
from whetstone.launch.roles.siblings import own_rank, ranks_of, siblings
from whetstone.launch.roles.weights import PublishingServer
from whetstone.launch.roles.where import own_token, reachable
from whetstone.launch.roles.whose import flow_section, model_named, run_identity
from whetstone.launch.structure import ranks_cannot_evaluate
from whetstone.trainer.ranks import Ranks
from whetstone.weights.published import PublishedWeights
from whetstone.weights.settings import WeightsSection
from whetstone.weights.tcp_server import check_listening

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge


def train_for(
    recipe: Recipe, url: str, display: Display, *, model: str | None = None, threads: int = 0
) -> RunSummary:
    """Train to the last step on the batches of the flow at ``url``, from the newest checkpoint on.

    model: which of the run's; the first unless given. threads: of this process, where the recipe says
    nothing. Raises Drained when it was told to end, after a checkpoint of the step that it was in, and
    UserError as ``train`` does, for a flow that is not there or another run's, where no batch comes, and for
    a model that the run has not.
    """
    name = model_named(recipe.workflow.models, model)
    first, size = own_rank() == 0, ranks_of(recipe)
    # Who is not evaluated, or leaves that to the first rank, needs no benchmarks.
    aheads = look_at_all(recipe, display.say, evaluates=first and name == recipe.workflow.models[0])
    weights = flow_section(aheads[name].recipe).weights
    if weights.folder and name != next(iter(aheads)):  # beside those of the first
        weights = weights.model_copy(update={"folder": f"{weights.folder}/{name}"})

    _check_evaluation(aheads[name], size)

    @asynccontextmanager
    async def join(ahead: Ahead, judge: RunJudge, policy: LoadedModel, ranks: Ranks) -> AsyncGenerator[Parts]:
        async with _batches(url, aheads, name, ranks, display.say) as batches:
            trainer = trainer_of(ahead.recipe, policy, ranks)
            serving = (
                partial(_on_paper, ahead.recipe, policy.model)
                if ranks.size > 1 or needs_no_engine(ahead)
                else partial(_serving, ahead.recipe, trainer.plain_copy, policy.tokenizer)
            )
            with PublishedWeights(
                name,
                weights,
                dtype=trainer.dtype,
                token=own_token(),
                folder=ahead.recipe.run_dir() / "weights",
                reach=partial(reachable, url),
                crew=ranks.apart(),
            ) as published:
                server = PublishingServer(published, partial(trainer.weights, parts=True), batches.publish)
                yield Parts(ranks, judge, policy, trainer, batches, server, serving, batches.usage)
                if len(aheads) > 1:
                    await batches.end_together(ahead.recipe.trainer.steps)

    ahead = aheads[name]
    if first:
        asyncio.run(_agreed(url, aheads, weights, display.say))
    words = ["--flow", url, "--model", name, *(["--threads", str(threads)] if threads else [])]
    with siblings(recipe, words, display.say):
        return train(ahead.recipe, display, join=join, threads=threads, look=lambda recipe, say: ahead)


def _check_evaluation(ahead: Ahead, ranks: int) -> None:
    """Raise UserError for ranks that would have to come together for an evaluation of their own."""
    if ranks > 1 and ahead.measured and ahead.recipe.evaluation.process != "separate":
        raise ranks_cannot_evaluate(ranks)


@asynccontextmanager
async def _batches(
    url: str, aheads: Mapping[str, Ahead], name: str, ranks: Ranks, say: Callable[[str], None]
) -> AsyncGenerator[Told]:
    """The batches of a model, on each of its trainer's ranks, which are told here what signals are for."""
    mine = asyncio.current_task()
    assert mine is not None
    if not ranks.first:
        on_signals(lambda: None, mine.cancel)  # that it drains, the first one says
        yield Told(ranks, None)
        return
    client = FlowClient(url, run_identity(aheads), say=say)
    try:
        asked = Asked(client, name, aheads[name].recipe, say)
        on_signals(asked.drain, mine.cancel)
        yield Told(ranks, asked)
    finally:
        await client.close()


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


def needs_no_engine(ahead: Ahead) -> bool:
    """Whether nothing would be asked of an engine here but the lengths of prompts: where nothing is evaluated
    by this process."""
    return ahead.recipe.evaluation.process == "separate" or not ahead.measured


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
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    yield OnPaper(context, recipe.engine.options.get("max_context"))

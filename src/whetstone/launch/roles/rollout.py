"""``whetstone role rollout``: a replica that samples and judges the prompts of a flow."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from whetstone.engine.engine import Engine
from whetstone.engine.loading import LoadedModel
from whetstone.flow.replica import Replica
from whetstone.flow.sampling import GroupSampler, episodes
from whetstone.flow.service.client import FlowClient
from whetstone.launch.ahead import Ahead, look_at_all
from whetstone.launch.local import configure_torch
from whetstone.launch.parts import sampling_engine
from whetstone.launch.recipe import Recipe
from whetstone.launch.roles.ends import on_signals
from whetstone.launch.roles.where import own_token
from whetstone.launch.roles.whose import flow_section, run_identity
from whetstone.launch.run_judge import run_judge
from whetstone.launch.start import model_to_fill
from whetstone.weights.followed import FollowedWeights
from whetstone.workflow.factory import build_workflow
from whetstone.workflow.replies import EngineReplies

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge

Say = Callable[[str], None]


def own_name() -> str:
    """A name that no other replica has: pods that share a host's network repeat its name and process ids."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def sample_for(recipe: Recipe, url: str, name: str, say: Say, *, threads: int = 0) -> None:
    """Work for the flow at ``url`` until told to end.

    name: a replica that comes back under its name is given its prompts again. threads: of this process, where
    the recipe says nothing. Raises UserError when the flow is not there or another run's, and for what
    ``look_at_all`` refuses, a judge that cannot judge here, an engine or a model that does not fit.
    """
    aheads = look_at_all(recipe, say, evaluates=False)
    configure_torch(recipe, threads or os.cpu_count() or 1)
    asyncio.run(_work(aheads, url, name, say))


class _Hosted(NamedTuple):
    """A model that this replica samples with."""

    engine: Engine
    replies: EngineReplies
    loaded: LoadedModel


async def _work(aheads: Mapping[str, Ahead], url: str, name: str, say: Say) -> None:
    first = next(iter(aheads.values()))
    client = FlowClient(url, run_identity(aheads), say=say)
    mine = asyncio.current_task()
    assert mine is not None
    working: list[Replica] = []
    on_signals(lambda: working[0].drain() if working else mine.cancel(), mine.cancel)
    async with AsyncExitStack() as undone:
        undone.push_async_callback(client.close)
        judge = await undone.enter_async_context(run_judge(first.recipe, first.recipe.judge.workers))
        await client.hello()  # before the model is loaded, for this may refuse
        hosted = {
            model: await undone.enter_async_context(_hosted(ahead.recipe)) for model, ahead in aheads.items()
        }
        models = {model: (one.engine, one.loaded.model) for model, one in hosted.items()}
        weights = FollowedWeights(models, flow_section(first.recipe).weights, token=own_token(), say=say)
        undone.callback(weights.close)
        replica = _replica(first, client, weights, hosted, judge, name, say)
        working.append(replica)
        say(f"replica {name} works for {url}")
        try:
            await replica.run()
        finally:
            said = ", ".join(f"{count} {what}" for what, count in sorted(replica.receipts.items()))
            say(f"replica {name} ends; groups: {said or 'none'}")


@asynccontextmanager
async def _hosted(recipe: Recipe) -> AsyncGenerator[_Hosted]:
    loaded = model_to_fill(recipe)
    serving = sampling_engine(recipe, lambda: loaded.model.requires_grad_(False), loaded.tokenizer)
    async with serving as (engine, replies):
        yield _Hosted(engine, replies, loaded)


def _replica(
    ahead: Ahead,
    client: FlowClient,
    weights: FollowedWeights,
    hosted: Mapping[str, _Hosted],
    judge: RunJudge,
    name: str,
    say: Say,
) -> Replica:
    recipe = ahead.recipe
    sampler = GroupSampler(
        build_workflow(recipe.workflow, judge),
        {model: one.replies for model, one in hosted.items()},
        recipe.trainer.samples_per_prompt,
        recipe.seed,
        recipe.judge.max_cases or None,
        together=recipe.deterministic,
    )
    problems = {problem.id: problem for problem in ahead.sets.train}
    room = flow_section(recipe).room_for(recipe.trainer.prompts_per_step)
    return Replica(name, client, episodes(sampler, problems), weights, room=room, say=say)

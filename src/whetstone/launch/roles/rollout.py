"""``whetstone role rollout``: a replica that samples and judges the prompts of a flow."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from whetstone.engine.engine import Engine
from whetstone.engine.factory import build_engine, require
from whetstone.engine.loading import LoadedModel
from whetstone.flow.replica import Replica
from whetstone.flow.sampling import GroupSampler, episodes
from whetstone.flow.service.client import FlowClient
from whetstone.launch.ahead import Ahead, look_ahead
from whetstone.launch.local import configure_torch
from whetstone.launch.recipe import Recipe
from whetstone.launch.roles.ends import on_signals
from whetstone.launch.roles.where import own_token
from whetstone.launch.roles.whose import flow_section, run_identity
from whetstone.launch.run_judge import run_judge
from whetstone.launch.start import model_to_fill
from whetstone.weights.followed import FollowedWeights
from whetstone.workflow.factory import build_workflow
from whetstone.workflow.replies import EngineReplies
from whetstone.workflow.shipped import POLICY

if TYPE_CHECKING:
    from whetstone.launch.run_judge import RunJudge

Say = Callable[[str], None]


def own_name() -> str:
    """A name that no other replica has."""
    return f"{socket.gethostname()}-{os.getpid()}"


def sample_for(recipe: Recipe, url: str, name: str, say: Say, *, threads: int = 0) -> None:
    """Work for the flow at ``url`` until told to end.

    name: a replica that comes back under its name is given its prompts again. threads: of this process, where
    the recipe says nothing. Raises UserError when the flow is not there or another run's, and for what
    ``look_ahead`` refuses, a judge that cannot judge here, an engine or a model that does not fit.
    """
    ahead = look_ahead(recipe, say)
    configure_torch(recipe, threads or os.cpu_count() or 1)
    asyncio.run(_work(ahead, url, name, say))


async def _work(ahead: Ahead, url: str, name: str, say: Say) -> None:
    recipe = ahead.recipe
    client = FlowClient(url, run_identity(ahead), say=say)
    mine = asyncio.current_task()
    assert mine is not None
    working: list[Replica] = []
    on_signals(lambda: working[0].drain() if working else mine.cancel(), mine.cancel)
    async with AsyncExitStack() as undone:
        undone.push_async_callback(client.close)
        judge = await undone.enter_async_context(run_judge(recipe, recipe.judge.workers))
        await client.hello()  # before the model is loaded, for this may refuse
        loaded = model_to_fill(recipe)
        engine = build_engine(recipe.engine, lambda: loaded.model.requires_grad_(False), loaded.tokenizer)
        undone.push_async_callback(engine.close)
        _check(recipe, engine)
        models = {POLICY: (engine, loaded.model)}
        weights = FollowedWeights(models, flow_section(recipe).weights, token=own_token(), say=say)
        undone.callback(weights.close)
        replica = _replica(ahead, client, weights, engine, loaded, judge, name, say)
        working.append(replica)
        say(f"replica {name} works for {url}")
        try:
            await replica.run()
        finally:
            said = ", ".join(f"{count} {what}" for what, count in sorted(replica.receipts.items()))
            say(f"replica {name} ends; groups: {said or 'none'}")


def _check(recipe: Recipe, engine: Engine) -> None:
    require(
        engine,
        recipe.engine,
        repeatable=recipe.deterministic,
        tensors=True,
        full_logprobs=recipe.sampling.top_p < 1 or recipe.sampling.top_k > 0,
    )


def _replica(
    ahead: Ahead,
    client: FlowClient,
    weights: FollowedWeights,
    engine: Engine,
    loaded: LoadedModel,
    judge: RunJudge,
    name: str,
    say: Say,
) -> Replica:
    recipe = ahead.recipe
    limit = recipe.workflow.max_prompt_tokens
    sampler = GroupSampler(
        build_workflow(recipe.workflow, judge),
        EngineReplies(engine, loaded.tokenizer, recipe.sampling, max_prompt_tokens=limit),
        recipe.trainer.samples_per_prompt,
        recipe.seed,
        recipe.judge.max_cases or None,
        together=recipe.deterministic,
    )
    problems = {problem.id: problem for problem in ahead.sets.train}
    room = flow_section(recipe).room_for(recipe.trainer.prompts_per_step)
    return Replica(name, client, episodes(sampler, problems), weights, room=room, say=say)

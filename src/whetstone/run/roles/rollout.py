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
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import open_environment
from whetstone.rollout.replica import RolloutReplica
from whetstone.rollout.sampling import GroupSampler, episodes
from whetstone.rollout.service.client import FlowClient
from whetstone.run.initial_model import replica_model
from whetstone.run.local import configure_torch
from whetstone.run.parts import sampling_engine
from whetstone.run.prepared_run import PreparedRun, preflight_models
from whetstone.run.recipe import Recipe
from whetstone.run.roles.identity import flow_section, run_identity
from whetstone.run.roles.role_addresses import run_token
from whetstone.run.run_judge import run_judge
from whetstone.run.signals import drain_on_signal
from whetstone.weights.subscription import SubscribedWeights

if TYPE_CHECKING:
    pass

Log = Callable[[str], None]


def unique_name() -> str:
    """Return a unique name. Host name and process id are not enough: pods on a host network may share
    both."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def run_replica(recipe: Recipe, url: str, name: str, log: Log, *, threads: int = 0) -> None:
    """Run a replica for the flow at ``url`` until a signal stops it.

    name: a replica that restarts under its name gets its prompts again. threads: of this process, if the
    recipe sets none. Raises UserError for an unreachable flow or that of another run, as ``preflight_models``
    does, and for a judge, engine or model that cannot be used.
    """
    prepared = preflight_models(recipe, log, with_evaluation=False)
    configure_torch(recipe, threads or os.cpu_count() or 1)
    asyncio.run(_run(prepared, url, name, log))


class _Hosted(NamedTuple):
    """A model with which this replica samples."""

    engine: Engine
    replies: EngineReplies
    loaded: LoadedModel


async def _run(prepared: Mapping[str, PreparedRun], url: str, name: str, log: Log) -> None:
    first = next(iter(prepared.values()))
    recipe = first.recipe
    client = FlowClient(url, run_identity(prepared), log=log)
    task = asyncio.current_task()
    assert task is not None
    running: list[RolloutReplica] = []
    async with AsyncExitStack() as resources:
        resources.enter_context(drain_on_signal(lambda: running[0].drain() if running else task.cancel()))
        resources.push_async_callback(client.close)
        judge = await resources.enter_async_context(run_judge(recipe, recipe.judge.workers))
        # The flow may refuse this replica, so this comes before the model is loaded.
        await client.hello()
        hosted = {
            model: await resources.enter_async_context(_hosted(ahead.recipe))
            for model, ahead in prepared.items()
        }
        models = {model: (one.engine, one.loaded.model) for model, one in hosted.items()}
        weights = SubscribedWeights(models, flow_section(recipe).weights, token=run_token(), log=log)
        resources.callback(weights.close)
        environment = await resources.enter_async_context(open_environment(recipe.environment))
        sampler = GroupSampler(
            environment,
            judge,
            {model: one.replies for model, one in hosted.items()},
            recipe.trainer.samples_per_prompt,
            recipe.seed,
            recipe.judge.max_cases or None,
            batch_turns=recipe.deterministic,
        )
        problems = {problem.id: problem for problem in first.sets.train}
        specs = {model: run.recipe.algorithm for model, run in prepared.items()}
        room = flow_section(recipe).room_for(recipe.trainer.prompts_per_step)
        replica = RolloutReplica(
            name, client, episodes(sampler, problems, specs), weights, room=room, log=log
        )
        running.append(replica)
        log(f"replica {name} works for {url}")
        try:
            await replica.run()
        finally:
            receipts = ", ".join(f"{count} {what}" for what, count in sorted(replica.receipts.items()))
            log(f"replica {name} ends; groups: {receipts or 'none'}")


@asynccontextmanager
async def _hosted(recipe: Recipe) -> AsyncGenerator[_Hosted]:
    loaded = replica_model(recipe)
    serving = sampling_engine(recipe, lambda: loaded.model.requires_grad_(False), loaded.tokenizer)
    async with serving as (engine, replies):
        yield _Hosted(engine, replies, loaded)

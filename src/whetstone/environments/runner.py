"""Runs the episodes of an environment: groups, their order, random streams, and the scheduling of turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from whetstone.core.errors import user_error_of
from whetstone.core.problem import Problem
from whetstone.core.sample import Group, Sample
from whetstone.environments.conversation import Reply
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, ProgramJudge, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.environments.replies import EngineReplies
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.turn_barrier import TurnBarrier


@asynccontextmanager
async def open_environment(settings: EnvironmentSection) -> AsyncGenerator[Environment]:
    """The environment with these settings; closed at the end."""
    environment = settings.build()
    try:
        yield environment
    finally:
        await environment.close()


@dataclass(frozen=True)
class RolloutRequest:
    """How the groups of a problem are sampled.

    replies: the engines of the models, by name. judge: of programs. n: the number of episodes. draw: the draw
    number in the run. seed: fixes all random streams. options: of every judgement (see ``JudgeOptions``).
    barrier: synchronizes later turns.
    """

    replies: Mapping[str, EngineReplies]
    judge: ProgramJudge
    n: int
    draw: int = 0
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    barrier: TurnBarrier = field(default_factory=TurnBarrier)


@dataclass(frozen=True)
class RequestedReply:
    """A first reply that is being generated. ``reply`` is its future."""

    prompt: Prompt
    prompt_ids: list[int]
    reply: asyncio.Future[Reply]

    async def wait(self) -> Reply:
        """See FirstReply."""
        return await self.reply


async def run_groups(environment: Environment, problem: Problem, request: RolloutRequest) -> dict[str, Group]:
    """Play ``request.n`` episodes and return the group of each model.

    Samples are in the order of episodes, not of completion, so a repeated run gives the same groups. Raises
    UserError for a prompt that is too long.
    """
    name, prompt = environment.models[0], environment.prompt(problem)
    first: list[RequestedReply | None] = [None] * request.n
    drawn: AsyncIterator[Reply] | None = None
    prompt_ids: list[int] = []
    if prompt is not None:
        # One request for all first replies, before any await: so requests of concurrent groups reach the
        # engine in draw order, and the engine reads the prompt once.
        prompt_ids, drawn = request.replies[name].draw(problem, prompt, n=request.n, seed=request.seed)
        loop = asyncio.get_running_loop()
        first = [RequestedReply(prompt, prompt_ids, loop.create_future()) for _ in range(request.n)]
    request.barrier.register(request.n)
    try:
        async with asyncio.TaskGroup() as tasks:
            episodes = [
                tasks.create_task(_run_episode(environment, problem, request, index, first[index]))
                for index in range(request.n)
            ]
            if drawn is not None:
                await _distribute(drawn, first)
    except BaseExceptionGroup as group:
        # A task group wraps every error. Users get their own error, without the group.
        raise user_error_of(group) or group from None
    rollouts = [episode.result() for episode in episodes]
    rollouts = await environment.finish_group(problem, rollouts, request.judge)
    return {
        model: _group(problem, rollouts, model, prompt_ids if model == name else [])
        for model in environment.models
    }


async def _distribute(drawn: AsyncIterator[Reply], first: Sequence[RequestedReply | None]) -> None:
    """Hand each reply to its episode."""
    async for reply in drawn:
        requested = first[reply.index]
        if requested is not None and not requested.reply.done():
            requested.reply.set_result(reply)
    for index, requested in enumerate(first):
        if requested is not None and not requested.reply.done():
            raise RuntimeError(f"the engine returned no reply {index} of {len(first)}")


async def _run_episode(
    environment: Environment,
    problem: Problem,
    request: RolloutRequest,
    index: int,
    first: RequestedReply | None,
) -> Rollout:
    with request.barrier.participant():
        episode = Episode(
            problem,
            request.replies,
            request.judge,
            index=index,
            seed=request.seed,
            first=first,
            options=request.options,
            wait_turn=lambda: request.barrier.wait(request.draw, index),
        )
        return await environment.rollout(problem, episode)


# Stands for the prompt of a group whose episodes got no reply at all, because a group has a prompt.
_NO_PROMPT = [0]
_NO_SAMPLE = Sample([], [], [], "abort", "")


def _group(problem: Problem, rollouts: Sequence[Rollout], model: str, prompt_ids: list[int]) -> Group:
    samples = [sample for rollout in rollouts for sample in rollout.samples.get(model, [])] or [_NO_SAMPLE]
    shared = prompt_ids or samples[0].prompt_ids or _NO_PROMPT
    # The trainer computes a shared prompt once, so it needs one of the recordings. They differ by rounding,
    # or by an update of the weights between two replies.
    routing = next((each.prompt_routing for each in samples if not each.prompt_ids), None)
    samples = [each if each.prompt_ids else replace(each, prompt_routing=None) for each in samples]
    return Group(problem.id, shared, samples, {"source": problem.source}, routing)

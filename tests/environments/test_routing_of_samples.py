"""Which recorded experts belong to which token of a sample."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from msgspec.structs import replace

from tests.environments.scripted import TOKENIZER, Says, in_turn, played
from tests.environments.test_environments import PROBLEMS
from whetstone.core.problem import Problem
from whetstone.core.sample import Group, Routing, Sample
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.environments.settings import EnvironmentSection


class Marks(Says):
    """Marks each token that it has read with the number of the turn and that of the reply, as its experts."""

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        assert request.routing
        turn = TOKENIZER.decode(request.prompt_ids).count("[assistant]")
        async for reply in super().generate(request):
            read = len(request.prompt_ids) + len(reply.token_ids) - 1
            yield replace(reply, routing=Routing(1, 2, False, bytes([turn, reply.index]) * read))


class OneSampleForEachTurn(Environment):
    """Two turns, as one sample, or with ``divided`` the second turn as a sample of its own."""

    def __init__(self, settings: EnvironmentSection, divided: bool = False) -> None:
        self.divided = divided

    def prompt(self, problem: Problem) -> Prompt:
        return Prompt(problem.id, "", chat=True)

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        conversation = await episode.begin()
        await conversation.send("Go on.")
        return Rollout({"policy": [conversation.sample(reward=1.0, first_turn=int(self.divided))]})


def two_turns(divided: bool = False) -> Group:
    engine = Marks(in_turn(("qz", "zqzq"), ("zq", "q")))
    kind = f"{__name__}.OneSampleForEachTurn"
    environment = EnvironmentSection.model_validate({"kind": kind, "options": {"divided": divided}}).build()
    return asyncio.run(played(environment, engine, PROBLEMS[0], 2, max_tokens=8, routing=True))


def turns_of(routing: Routing | None) -> list[int]:
    assert routing is not None
    return list(routing.data[::2])


def test_each_token_has_the_experts_of_the_pass_that_first_sampled_after_it() -> None:
    group = two_turns()
    for sample in group.samples:
        [(start, end)] = sample.given
        # The end of the first reply was read in the second turn only.
        assert turns_of(sample.routing) == [1] * (start - 1) + [2] * (len(sample.response_ids) - start)
        assert sample.routing is not None
        assert sample.routing.tokens == len(sample.response_ids) - 1
        assert end > start


def test_a_group_has_the_experts_of_its_prompt_once_from_the_first_sample() -> None:
    group = two_turns()
    assert group.prompt_routing == Routing(1, 2, False, bytes([1, 0]) * len(group.prompt_ids))
    assert [sample.prompt_routing for sample in group.samples] == [None, None]


def test_a_sample_of_later_turns_has_the_experts_of_all_tokens_before_them() -> None:
    def check(sample: Sample) -> None:
        before = turns_of(sample.prompt_routing)
        assert len(before) == len(sample.prompt_ids)
        first = before.count(1)
        assert before == [1] * first + [2] * (len(before) - first)
        assert 0 < first < len(before)
        assert turns_of(sample.routing) == [2] * (len(sample.response_ids) - 1)

    group = two_turns(divided=True)
    assert group.prompt_routing is None
    for sample in group.samples:
        check(sample)

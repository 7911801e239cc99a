"""All replies to a prompt are judged on the same cases, and on others when the problem comes again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from whetstone.algorithm.named import algorithm_named
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.scratch import build_tokenizer
from whetstone.environments.replies import EngineReplies
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn
from whetstone.judge import AsyncJudge
from whetstone.rollout.local_flow import LocalFlow
from whetstone.rollout.sampling import GroupSampler
from whetstone.rollout.source import PromptSource

pytestmark = pytest.mark.process

PROBLEM = Problem("p", "s", StdinTests([StdinCase(str(i), str(i)) for i in range(20)]))


class OneTokenEngine:
    """Says one token."""

    version = 0

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        for index in range(request.n):
            yield Completion(index, [1], [-0.5], [0], "stop")

    def check(self, request: GenerationRequest) -> None: ...

    async def update_weights(self, weights: object, version: int) -> None: ...

    async def close(self) -> None: ...


class SameProgram(SingleTurn):
    """Judges the same program for every reply."""

    def program_of(self, problem: Problem, reply: str) -> str | None:
        return "print(input())"


def cases_run(seed: int, max_cases: int | None) -> list[list[tuple[int, ...]]]:
    """For three groups of three replies: the numbers of the cases each reply was judged on."""

    async def main() -> list[list[tuple[int, ...]]]:
        tokenizer: Any = build_tokenizer(["s"], 300)
        engine: Any = OneTokenEngine()
        async with AsyncJudge(workers=1) as judge:
            params = Sampling(max_tokens=4)
            replies = {"policy": EngineReplies(engine, tokenizer, params, max_prompt_tokens=512)}
            environment = SameProgram(EnvironmentSection(chat=False))
            sample = GroupSampler(environment, judge, replies, 3, seed, max_cases)
            specs = {"policy": algorithm_named("grpo", {"drop_zero_variance": False})}
            flow = LocalFlow(PromptSource([PROBLEM], seed), sample, replies, specs, prompts_per_step=3)
            drawn = await flow.batch("policy", 0)
        judged = [[sample.judgement for sample in group.samples] for group in drawn.sampled]
        return [[tuple(case.index for case in j.cases) for j in group if j] for group in judged]

    return asyncio.run(main())


def test_siblings_share_a_subset_that_changes_from_draw_to_draw_and_repeats_with_the_seed() -> None:
    groups = cases_run(seed=1, max_cases=4)
    assert all(len(set(group)) == 1 and len(group[0]) == 4 for group in groups)
    assert len({group[0] for group in groups}) == 3
    assert sorted(cases_run(seed=1, max_cases=4)) == sorted(groups)
    assert sorted(cases_run(seed=2, max_cases=4)) != sorted(groups)


def test_without_a_bound_every_case_is_judged() -> None:
    assert cases_run(seed=1, max_cases=None) == [[tuple(range(20))] * 3] * 3

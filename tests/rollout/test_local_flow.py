"""Batches of a run in one process: groups with a signal, every drop counted, an exact saved place."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.algorithm.algorithm import Algorithm
from whetstone.algorithm.named import algorithm_named
from whetstone.core.problem import Problem, Program, StdinCase, StdinTests
from whetstone.core.sample import Group, Sample
from whetstone.core.settings import Sampling
from whetstone.core.verdict import Judgement, Verdict
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.scratch import build_tokenizer
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.environments.replies import EngineReplies
from whetstone.rollout.group_facts import drop_reason
from whetstone.rollout.ledger import unaccounted
from whetstone.rollout.local_flow import LocalFlow
from whetstone.rollout.protocol import Flow
from whetstone.rollout.sampling import GroupSampler
from whetstone.rollout.source import PromptSource


def problem(number: int) -> Problem:
    return Problem(f"p{number}", "s", StdinTests([StdinCase("", "1")]))


NO_JUDGE: Any = None
PROBLEMS = [problem(i) for i in range(7)]


class ScriptedEnvironment(Environment):
    """Rewards by problem: even ones differ within the group, odd ones are all equal, p6 is unscored."""

    def prompt(self, problem: Problem) -> Prompt:
        return Prompt(problem.id, "", chat=False)

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        conversation = await episode.begin()
        number = int(problem.id[1:])
        reward: float | None = float(episode.index == 0) if number % 2 == 0 else 1.0
        if number == 6:
            reward = 1.0 if episode.index == 2 else None
        return Rollout({"policy": [conversation.sample(reward=reward)]})


class ScriptedEngine:
    """Says one token, and keeps the seeds that it was asked with."""

    version = 0

    def __init__(self) -> None:
        self.seeds: list[int] = []

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.seeds.append(request.seed)
        for index in range(request.n):
            yield Completion(index, [1], [-0.5], [0], "stop")

    def check(self, request: GenerationRequest) -> None: ...

    async def update_weights(self, weights: object, version: int) -> None: ...

    async def close(self) -> None: ...


class RecordingJudge:
    """Refuses every program, and keeps the options."""

    minimum_tier = "restricted"

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        self.options.append(options)
        return Judgement(Verdict.NO_CODE, [], 0.0, "root")


class JudgedEnvironment(ScriptedEnvironment):
    """Judges a program for every reply, whatever it is."""

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        await episode.judge(Program("python", "pass"))
        return await super().rollout(problem, episode)


def flow(
    source: PromptSource[Problem],
    spec: Algorithm,
    prompts: int = 4,
    engine: Any = None,
    judge: RecordingJudge | None = None,
    seed: int = 5,
    max_cases: int | None = None,
) -> Flow:
    """A flow that judges its replies only if it has a judge."""
    tokenizer: Any = build_tokenizer(["p0123456789"], 300)
    answering: Any = engine or ScriptedEngine()
    replies = {"policy": EngineReplies(answering, tokenizer, Sampling(max_tokens=4), max_prompt_tokens=64)}
    environment = ScriptedEnvironment() if judge is None else JudgedEnvironment()
    sample = GroupSampler(environment, judge or NO_JUDGE, replies, 3, seed, max_cases)
    return LocalFlow(source, sample, replies["policy"], spec, prompts_per_step=prompts)


def test_every_sampled_group_is_trained_on_or_counted_with_its_reason() -> None:
    drawn = asyncio.run(flow(PromptSource(PROBLEMS, 0), algorithm_named("dr_grpo", {}), 7).next_batch(0))
    assert {g.problem_id for g in drawn.batch.groups} == {"p0", "p2", "p4"}
    assert drawn.batch.dropped == {"zero_variance": 3, "unscored": 1}
    assert len(drawn.sampled) == 7


def test_dynamic_sampling_refills_up_to_its_rounds() -> None:
    source = PromptSource(PROBLEMS, 0)
    spec = algorithm_named("dapo", {"refill_rounds": 10})
    drawn = asyncio.run(flow(source, spec).next_batch(0))
    assert len(drawn.batch.groups) == 4
    assert len(drawn.sampled) == 4 + sum(drawn.batch.dropped.values())


def test_the_ledger_accounts_for_every_generated_token() -> None:
    drawing = flow(PromptSource(PROBLEMS, 0), algorithm_named("dapo", {"refill_rounds": 1}))
    drawn = asyncio.run(drawing.next_batch(0))
    tokens = asyncio.run(drawing.report()).tokens
    assert unaccounted(tokens) == 0
    assert tokens["generated"] == 3 * len(drawn.sampled)
    assert tokens["trained"] == 3 * len(drawn.batch.groups)


def test_weights_of_another_version_are_refused() -> None:
    with pytest.raises(RuntimeError, match="the engine serves 0"):
        asyncio.run(flow(PromptSource(PROBLEMS, 0), algorithm_named("grpo", {})).next_batch(1))


def test_an_algorithm_that_samples_with_the_start_gets_version_0_at_every_step() -> None:
    drawn = asyncio.run(flow(PromptSource(PROBLEMS, 0), algorithm_named("ssd"), 7).next_batch(3))
    assert len(drawn.batch.groups) == 7
    current = algorithm_named("ssd", {"sampling_weights": "current"})
    with pytest.raises(RuntimeError, match="the engine serves 0"):
        asyncio.run(flow(PromptSource(PROBLEMS, 0), current).next_batch(3))


def test_a_restored_flow_continues_with_the_same_problems_and_streams() -> None:
    async def batches(
        count: int, state: dict[str, int] | None
    ) -> tuple[list[list[str]], list[int], dict[str, int]]:
        engine = ScriptedEngine()
        mine = flow(PromptSource(PROBLEMS, 1), algorithm_named("dapo", {}), engine=engine)
        if state is not None:
            mine.restore(state)
        ids = [[g.problem_id for g in (await mine.next_batch(0)).sampled] for _ in range(count)]
        return ids, engine.seeds, mine.state()

    whole, whole_seeds, _ = asyncio.run(batches(5, None))
    first, first_seeds, state = asyncio.run(batches(2, None))
    rest, rest_seeds, _ = asyncio.run(batches(3, state))
    assert first + rest == whole
    assert first_seeds + rest_seeds == whole_seeds
    assert len(set(whole_seeds)) == len(whole_seeds)


def judging_options(seed: int, max_cases: int | None) -> list[dict[str, Any]]:
    """The options with which three replies to each of three draws of one problem are judged."""
    judge = RecordingJudge()
    source = PromptSource(PROBLEMS[:1], 0)
    drawing = flow(source, algorithm_named("grpo"), 3, judge=judge, seed=seed, max_cases=max_cases)
    asyncio.run(drawing.next_batch(0))
    return judge.options


def test_siblings_share_a_subset_of_cases_that_changes_with_draw_and_seed() -> None:
    options = judging_options(seed=1, max_cases=4)
    assert {each["max_cases"] for each in options} == {4}
    subsets = Counter(each["subset_seed"] for each in options)
    assert list(subsets.values()) == [3, 3, 3]
    assert Counter(each["subset_seed"] for each in judging_options(1, 4)) == subsets
    assert not subsets.keys() & {each["subset_seed"] for each in judging_options(2, 4)}
    assert judging_options(1, None) == [{}] * 9


@given(count=st.integers(1, 40), seed=st.integers(0, 5), size=st.integers(1, 9))
def test_an_epoch_has_every_problem_once_and_epochs_differ_only_in_order(
    count: int, seed: int, size: int
) -> None:
    problems = [problem(i) for i in range(size)]
    drawn = PromptSource(problems, seed).take(count)
    assert [number for number, _ in drawn] == list(range(count))
    for start in range(0, count - size + 1, size):
        assert Counter(p.id for _, p in drawn[start : start + size]) == Counter(p.id for p in problems)
    resumed = PromptSource(problems, seed)
    resumed.drawn = count // 2
    assert resumed.take(count - count // 2) == drawn[count // 2 :]


@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 1.0])), min_size=1, max_size=8))
def test_a_group_is_dropped_exactly_when_it_teaches_nothing(rewards: list[float | None]) -> None:
    group = Group("p", [1], [Sample([1], [0.0], [0], "stop", "", reward=r) for r in rewards])
    scored = [r for r in rewards if r is not None]
    reason = drop_reason(group, algorithm_named("grpo"))
    if len(scored) < 2:
        assert reason == "unscored"
    elif len(set(scored)) == 1:
        assert reason == "zero_variance"
        assert drop_reason(group, algorithm_named("grpo", {"drop_zero_variance": False})) is None
    else:
        assert reason is None
    assert drop_reason(group, algorithm_named("ssd")) is None


@given(st.lists(st.sampled_from([None, False, True]), min_size=1, max_size=8))
def test_one_accepted_reply_is_enough_for_a_cross_entropy_of_accepted_replies(
    accepted: list[bool | None],
) -> None:
    samples = [Sample([1], [0.0], [0], "stop", "", reward=0.5, accepted=each) for each in accepted]
    reason = drop_reason(Group("p", [1], samples), algorithm_named("rejection_sft"))
    assert reason == (None if True in accepted else "rejected")

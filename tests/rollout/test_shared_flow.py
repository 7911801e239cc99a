"""Batches of two models come of the same episodes: in step, each by its own filter, and again on resume."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from whetstone.algorithm.named import algorithm_named
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.sample import Group, Sample
from whetstone.engine.engine import Completion
from whetstone.environments.replies import GenerationProgress
from whetstone.rollout.flow import FlowBatch
from whetstone.rollout.ledger import unaccounted
from whetstone.rollout.local_flow import LocalFlow
from whetstone.rollout.replica import SamplingProgress
from whetstone.rollout.source import PromptSource

PROBLEMS = [Problem(f"p{i}", "s", StdinTests([StdinCase("", "1")])) for i in range(7)]


class Served:
    """As much of ``EngineReplies`` as a flow looks at."""

    version = 0


async def sampled(draw: int, problem: Problem, progress: SamplingProgress) -> dict[str, Group]:
    """Of odd draws the coder's group has no spread, of every fourth one the verifier's."""

    def group(name: str, flat: bool) -> Group:
        progress[name] = GenerationProgress(Served())  # pyright: ignore
        for _ in range(3):  # of which the environment uses two
            progress[name].add(Completion(0, [1], [-1.0], [0], "stop"))
        samples = [Sample([1], [-1.0], [0], "stop", name, reward=float(i and not flat)) for i in range(2)]
        return Group(problem.id, [draw + 1], samples)

    await asyncio.sleep(0)
    return {"coder": group("coder", draw % 2 == 1), "verifier": group("verifier", draw % 4 == 0)}


def flow_of(refills: int, replies: dict[str, Any]) -> LocalFlow:
    spec = algorithm_named("dapo", {"refill_rounds": refills, "overlong_buffer": 0})
    specs = {"coder": spec, "verifier": spec}
    return LocalFlow(PromptSource(PROBLEMS, 3), sampled, replies, specs, prompts_per_step=4)  # pyright: ignore


def steps(flow: LocalFlow, replies: dict[str, Any], first: int, last: int) -> list[dict[str, FlowBatch]]:
    async def model(name: str, late: bool) -> list[FlowBatch]:
        found: list[FlowBatch] = []
        for version in range(first, last):
            if late:
                await asyncio.sleep(0.001)
            replies[name].version = version
            found.append(await flow.for_model(name).next_batch(version))
        return found

    async def both() -> list[dict[str, FlowBatch]]:
        async with asyncio.timeout(60):
            found = await asyncio.gather(model("coder", False), model("verifier", True))
        return [{"coder": a, "verifier": b} for a, b in zip(*found, strict=True)]

    return asyncio.run(both())


def told(batch: FlowBatch) -> Any:
    return [g.prompt_ids[0] - 1 for g in batch.batch.groups], batch.batch.dropped, len(batch.sampled)


def test_each_model_is_filtered_by_itself_and_both_are_sampled_until_both_have_enough() -> None:
    replies = {"coder": Served(), "verifier": Served()}
    flow = flow_of(9, replies)
    [first] = steps(flow, replies, 0, 1)
    coder, verifier = told(first["coder"]), told(first["verifier"])
    assert coder[0] == [0, 2, 4, 6]
    assert verifier[0] == [1, 2, 3, 5]
    for kept, dropped, count in (coder, verifier):
        assert len(kept) + sum(dropped.values()) == count == 7
    assert (coder[1], verifier[1]) == ({"zero_variance": 3}, {"zero_variance": 2, "surplus": 1})
    tokens = flow.report("verifier").tokens
    dropped = {"dropped/surplus": 2, "dropped/unused": 7, "dropped/zero_variance": 4}
    assert tokens == {"generated": 21, "trained": 8, "replayed": 0, **dropped}
    assert unaccounted(tokens) == 0


def test_a_flow_resumed_at_any_step_gives_the_same_batches() -> None:
    replies = {"coder": Served(), "verifier": Served()}
    whole = [{n: told(b) for n, b in step.items()} for step in steps(flow_of(1, replies), replies, 0, 5)]
    tokens: list[Mapping[str, int]] = []
    for at in range(1, 5):
        before, after = flow_of(1, replies), flow_of(1, replies)
        steps(before, replies, 0, at)
        for name in replies:
            after.for_model(name).restore(before.for_model(name).state())
        rest = [{n: told(b) for n, b in step.items()} for step in steps(after, replies, at, 5)]
        assert rest == whole[at:]
        tokens.append(after.report("coder").tokens)
    assert tokens == [tokens[0]] * 4


def test_models_that_are_not_at_the_same_version_are_not_sampled() -> None:
    replies = {"coder": Served(), "verifier": Served()}
    flow = flow_of(0, replies)

    async def run() -> None:
        replies["verifier"].version = 1
        both = flow.for_model("coder").next_batch(0), flow.for_model("verifier").next_batch(1)
        async with asyncio.timeout(60):
            await asyncio.gather(*both)

    with pytest.raises((RuntimeError, asyncio.CancelledError)):
        asyncio.run(run())

"""All replies to a prompt are judged on the same cases, and on others when the problem comes again."""

from __future__ import annotations

import asyncio

from whetstone.algorithm.spec import resolve
from whetstone.engine.base import Engine, SamplingParams
from whetstone.flow.local import LocalFlow
from whetstone.flow.source import PromptSource
from whetstone.judge import AsyncJudge, Judgement, Program
from whetstone.problem import Problem, StdinCase, StdinTests
from whetstone.sample import Group, Sample
from whetstone.workflow.single_turn import ProgramJudge

PROBLEM = Problem("p", "s", StdinTests([StdinCase(str(i), str(i)) for i in range(20)]))


class JudgingWorkflow:
    """Judges the same program for every reply."""

    def __init__(self) -> None:
        self.groups: list[list[Judgement]] = []

    async def run(
        self,
        problem: Problem,
        engine: Engine,
        judge: ProgramJudge,
        *,
        params: SamplingParams,
        n: int,
        seed: int,
    ) -> Group:
        program = Program("python", "print(input())")
        judged = await asyncio.gather(*(judge.judge(problem, program) for _ in range(n)))
        self.groups.append(judged)
        return Group(problem.id, [1], [Sample([1], [-0.5], [0], "stop", "x", reward=j.score) for j in judged])


class Served:
    version = 0


def cases_run(seed: int, max_cases: int | None) -> list[list[tuple[int, ...]]]:
    """For three groups of three replies: the numbers of the cases each reply was judged on."""

    async def main() -> list[list[tuple[int, ...]]]:
        workflow = JudgingWorkflow()
        async with AsyncJudge(workers=1) as judge:
            flow = LocalFlow(
                PromptSource([PROBLEM], seed),
                workflow,  # type: ignore[arg-type]
                Served(),  # type: ignore[arg-type]
                judge,
                resolve("grpo", {"drop_zero_variance": False}),
                SamplingParams(max_tokens=4),
                prompts_per_step=3,
                samples_per_prompt=3,
                seed=seed,
                max_cases=max_cases,
            )
            await flow.next_batch(0)
        return [[tuple(case.index for case in j.cases) for j in group] for group in workflow.groups]

    return asyncio.run(main())


def test_siblings_share_a_subset_that_changes_from_draw_to_draw_and_repeats_with_the_seed() -> None:
    groups = cases_run(seed=1, max_cases=4)
    assert all(len(set(group)) == 1 and len(group[0]) == 4 for group in groups)
    assert len({group[0] for group in groups}) == 3
    assert sorted(cases_run(seed=1, max_cases=4)) == sorted(groups)
    assert sorted(cases_run(seed=2, max_cases=4)) != sorted(groups)


def test_without_a_bound_every_case_is_judged() -> None:
    assert cases_run(seed=1, max_cases=None) == [[tuple(range(20))] * 3] * 3

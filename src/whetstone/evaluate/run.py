"""Put problems to a model, judge every reply, and say how good it is.

All problems are handed to the engine at once, in order, and it keeps its batch full from them; a
reply is judged as soon as it ends. So judging overlaps generation, and no verdict's timing decides
what is generated next: the same engine, plan and problems give the same replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from whetstone.engine.base import Engine
from whetstone.errors import UserError
from whetstone.evaluate.assemble import AssemblingJudge, assemble
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.results import Evaluation, ProblemResult, SampleResult, summarize
from whetstone.problem import Problem, Program
from whetstone.sample import Group
from whetstone.verdict import Judgement
from whetstone.workflow.single_turn import ProgramJudge, SingleTurn


class Progress(Struct, frozen=True):
    """How far an evaluation is. ``samples`` counts judged replies, of ``total_samples``."""

    samples: int
    total_samples: int
    accepted: int


async def evaluate(
    problems: Sequence[Problem],
    engine: Engine,
    judge: ProgramJudge,
    workflow: SingleTurn,
    plan: Plan,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    manifest: dict[str, Any] | None = None,
) -> Evaluation:
    """Evaluate ``plan.n`` replies to each problem.

    A problem that cannot be put to the model (its prompt is too long) counts as failed and says
    why. A reply without a verdict, because the judge or the engine failed, leaves the counts and is
    reported. Raises UserError when no problem could be asked, or no reply judged.
    """
    if not problems:
        raise UserError("no problems to evaluate on")
    counting = _CountingJudge(AssemblingJudge(judge), len(problems) * plan.n, on_progress)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_ask(problem, engine, counting, workflow, plan)) for problem in problems]
    answers = [task.result() for task in asked]
    refusals = [answer for answer in answers if isinstance(answer, UserError)]
    if len(refusals) == len(problems):
        raise refusals[0]
    results: list[ProblemResult] = []
    samples: list[SampleResult] = []
    for problem, answer in zip(problems, answers, strict=True):
        drawn = [] if isinstance(answer, UserError) else _samples(problem, answer)
        samples.extend(drawn)
        results.append(_result(problem, drawn, plan.n, answer if isinstance(answer, UserError) else None))
    return summarize(plan, results, samples, manifest or {})


class _CountingJudge:
    """Reports every judgement as progress."""

    def __init__(
        self, judge: ProgramJudge, total: int, on_progress: Callable[[Progress], None] | None
    ) -> None:
        self._judge = judge
        self._total = total
        self._on_progress = on_progress
        self._samples = 0
        self._accepted = 0

    async def judge(self, problem: Problem, program: Program) -> Judgement:
        judgement = await self._judge.judge(problem, program)
        self._samples += 1
        self._accepted += judgement.accepted
        if self._on_progress:
            self._on_progress(Progress(self._samples, self._total, self._accepted))
        return judgement


async def _ask(
    problem: Problem, engine: Engine, judge: ProgramJudge, workflow: SingleTurn, plan: Plan
) -> Group | UserError:
    try:
        return await workflow.run(
            problem, engine, judge, params=plan.params(), n=plan.n, seed=plan.seed_of(problem.id)
        )
    except UserError as error:
        return error
    except BaseExceptionGroup as group:
        _, others = group.split(UserError)
        if others is not None:
            raise
        return _first(group)


def _first(group: BaseExceptionGroup[Any]) -> UserError:
    inner = group.exceptions[0]
    if isinstance(inner, BaseExceptionGroup):
        return _first(inner)
    assert isinstance(inner, UserError)
    return inner


def _samples(problem: Problem, group: Group) -> list[SampleResult]:
    return [
        SampleResult(
            problem_id=problem.id,
            index=index,
            text=sample.text,
            program=None if sample.program is None else assemble(problem, sample.program),
            judgement=sample.judgement,
            finish_reason=sample.finish_reason,
            tokens=len(sample.response_ids),
        )
        for index, sample in enumerate(group.samples)
    ]


def _result(
    problem: Problem, samples: Sequence[SampleResult], n: int, refusal: UserError | None
) -> ProblemResult:
    unjudged = sum(sample.unjudged for sample in samples)
    return ProblemResult(
        id=problem.id,
        n=n if refusal else len(samples) - unjudged,
        correct=sum(s.judgement is not None and s.judgement.accepted for s in samples),
        unjudged=unjudged,
        difficulty=str(problem.meta.get("difficulty", "")),
        concept=str(problem.meta.get("concept", "")),
        error=str(refusal) if refusal else "",
    )

"""Put problems to a model, judge every reply, and say how good it is.

Replies come from a ReplyWriter in any order, and each is judged while others are still being written. No
verdict and no timing decides what is written next, and the result is made of sums over the replies: so
the same replies give the same result, in whatever order and in however many runs they came.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from whetstone.errors import UserError
from whetstone.evaluate.harness import Harness
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.replies.base import Question, Reply, ReplyWriter
from whetstone.evaluate.results import Evaluation, SampleResult
from whetstone.evaluate.tally import Tally
from whetstone.problem import Problem, Program
from whetstone.recipe import WorkflowSection
from whetstone.verdict import Judgement
from whetstone.workflow.prompt import prompt_of

_JUDGED_PER_CORE = 4
"""Replies at the judge at once: enough to keep it busy; each holds its problem's tests in memory."""


async def evaluate(
    problems: Iterable[Problem],
    writer: ReplyWriter,
    harness: Harness,
    settings: WorkflowSection,
    plan: Plan,
    *,
    known: Iterable[SampleResult] = (),
    record: Callable[[SampleResult], None] | None = None,
    total: int = 0,
    on_progress: Callable[[Tally], None] | None = None,
    manifest: dict[str, Any] | None = None,
) -> Evaluation:
    """Evaluate ``plan.n`` replies to each problem, asked as ``settings`` say.

    ``known`` replies are counted and not asked for again; ``record`` is called with each of the others
    once it is judged. Problems are read as they are needed; ``total`` is the number of replies to
    all, for those who watch.

    Every reply counts: one that could not be had, or whose judge failed, is not right, and is counted
    apart besides. Raises UserError when there is no verdict on any reply, or the writer cannot work at all.
    """
    run = _Run(writer, harness, settings, plan, Tally(plan, total), record, on_progress)
    return await run.go(problems, known, manifest or {})


class _Run:
    """One evaluation on its way."""

    def __init__(
        self,
        writer: ReplyWriter,
        harness: Harness,
        settings: WorkflowSection,
        plan: Plan,
        tally: Tally,
        record: Callable[[SampleResult], None] | None,
        on_progress: Callable[[Tally], None] | None,
    ) -> None:
        self._writer = writer
        self._harness = harness
        self._settings = settings
        self._plan = plan
        self._tally = tally
        self._record = record
        self._on_progress = on_progress

    async def go(
        self, problems: Iterable[Problem], known: Iterable[SampleResult], manifest: dict[str, Any]
    ) -> Evaluation:
        """Ask, judge and count everything."""
        there: defaultdict[str, set[int]] = defaultdict(set)
        for sample in known:
            there[sample.problem_id].add(sample.index)
            self._count(sample)
        questions = self._questions(problems, there)
        try:
            await self._ask_and_judge(questions)
        except BaseExceptionGroup as group:
            raise _users_error(group) or group from None
        for _ in questions:  # what a writer left unread is missed by the tally, not passed over
            pass
        return self._tally.evaluation(manifest)

    def _questions(self, problems: Iterable[Problem], there: Mapping[str, set[int]]) -> Iterator[Question]:
        """What to ask, problem by problem; the replies that are ``there`` are not wanted."""
        everything = frozenset(range(self._plan.n))
        for problem in problems:
            self._tally.expect(problem)
            yield Question(
                problem=problem,
                prompt=prompt_of(problem, self._settings),
                n=self._plan.n,
                seed=self._plan.seed_of(problem.id),
                wanted=everything - there.get(problem.id, set()),
            )

    async def _ask_and_judge(self, questions: Iterator[Question]) -> None:
        at_the_judge = asyncio.Semaphore(_JUDGED_PER_CORE * len(os.sched_getaffinity(0)))
        async with asyncio.TaskGroup() as tasks, aclosing(self._writer.write(questions)) as replies:
            async for question, reply in replies:
                await at_the_judge.acquire()
                task = tasks.create_task(self._finish(question.problem, reply))
                task.add_done_callback(lambda _: at_the_judge.release())

    async def _finish(self, problem: Problem, reply: Reply) -> None:
        """Judge a reply, count it and write it down."""
        program: str | None = None
        judgement: Judgement | None = None
        if reply.finish_reason != "failed":
            program = self._harness.program_of(problem, reply.text)
            judgement = await self._harness.judge(problem, Program(problem.language, program or ""))
        sample = SampleResult(
            problem_id=problem.id,
            index=reply.index,
            text=reply.text,
            program=program,
            judgement=judgement,
            finish_reason=reply.finish_reason,
            tokens=reply.tokens,
            thinking_tokens=reply.thinking_tokens,
            error=reply.error,
        )
        if self._record:
            self._record(sample)
        self._count(sample)

    def _count(self, sample: SampleResult) -> None:
        self._tally.add(sample)
        if self._on_progress:
            self._on_progress(self._tally)


def _users_error(group: BaseExceptionGroup[Any]) -> UserError | None:
    """The first of a group that holds nothing but errors of the user."""
    users, others = group.split(UserError)
    if users is None or others is not None:
        return None
    inner: Any = users
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner

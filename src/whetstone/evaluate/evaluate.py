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
from dataclasses import dataclass, field
from typing import Any

from whetstone.errors import UserError
from whetstone.evaluate.awaited import Awaited
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.replies.writer import Question, ReplyWriter
from whetstone.evaluate.results import Evaluation, SampleResult
from whetstone.evaluate.tally import Tally
from whetstone.problem import Problem
from whetstone.workflow.episode import Workflow
from whetstone.workflow.replies import Reply

_JUDGED_PER_CORE = 4
"""Replies at the judge at once: enough to keep it busy; each holds its problem's tests in memory."""


async def evaluate(
    problems: Iterable[Problem],
    writer: ReplyWriter,
    workflow: Workflow,
    plan: Plan,
    *,
    known: Iterable[SampleResult] = (),
    record: Callable[[SampleResult], None] | None = None,
    total: int = 0,
    on_progress: Callable[[Tally], None] | None = None,
    on_minute: Callable[[Tally, str], None] | None = None,
    minute_s: float = 60.0,
    manifest: dict[str, Any] | None = None,
) -> Evaluation:
    """Evaluate ``plan.n`` replies to each problem, asked and judged as ``workflow`` says.

    ``known`` replies are counted and not asked for again; ``record`` is called with each of the others
    once it is judged. Problems are read as they are needed; ``total`` is the number of replies to
    all, for those who watch. ``on_progress`` is called once when the known ones are counted, and after each
    other reply. ``on_minute`` is called every ``minute_s`` seconds with what is awaited, in
    words, whether or not anything comes.

    Every reply counts: one that could not be had, or whose judge failed, is not right, and is counted
    apart besides. Raises UserError when there is no verdict on any reply, or the writer cannot work at all.
    """
    run = _Run(writer, workflow, plan, Tally(plan, total), record, on_progress)
    minutes = asyncio.create_task(run.every(minute_s, on_minute)) if on_minute else None
    try:
        return await run.go(problems, known, manifest or {})
    finally:
        if minutes:
            minutes.cancel()
            await asyncio.wait([minutes])


@dataclass(frozen=True)
class _Run:
    """One evaluation on its way."""

    writer: ReplyWriter
    workflow: Workflow
    plan: Plan
    tally: Tally
    record: Callable[[SampleResult], None] | None
    on_progress: Callable[[Tally], None] | None
    awaited: Awaited = field(default_factory=Awaited)

    async def every(self, seconds: float, say: Callable[[Tally, str], None]) -> None:
        """Say what is awaited, for ever."""
        while True:
            await asyncio.sleep(seconds)
            say(self.tally, self.awaited.described(self.writer.waiting()))

    async def go(
        self, problems: Iterable[Problem], known: Iterable[SampleResult], manifest: dict[str, Any]
    ) -> Evaluation:
        """Ask, judge and count everything."""
        there: defaultdict[str, set[int]] = defaultdict(set)
        for sample in known:
            there[sample.problem_id].add(sample.index)
            self.tally.add(sample)
        if self.on_progress:
            self.on_progress(self.tally)
        questions = self._questions(problems, there)
        try:
            await self._ask_and_judge(questions)
        except BaseExceptionGroup as group:
            raise _users_error(group) or group from None
        # A writer need not read the questions to their end. Reading one is what makes the tally expect its
        # problem, so the rest are read here: a problem without a reply is an error, not one problem less.
        for _ in questions:
            pass
        return self.tally.evaluation(manifest)

    def _questions(self, problems: Iterable[Problem], there: Mapping[str, set[int]]) -> Iterator[Question]:
        """What to ask, problem by problem; the replies that are ``there`` are not wanted."""
        everything = frozenset(range(self.plan.n))
        for problem in problems:
            self.tally.expect(problem)
            question = Question(
                problem=problem,
                prompt=self.workflow.prompt(problem),
                n=self.plan.n,
                seed=self.plan.seed_of(problem.id),
                wanted=everything - there.get(problem.id, set()),
            )
            self.awaited.asked(question)
            yield question

    async def _ask_and_judge(self, questions: Iterator[Question]) -> None:
        at_the_judge = asyncio.Semaphore(_JUDGED_PER_CORE * len(os.sched_getaffinity(0)))
        async with asyncio.TaskGroup() as tasks, aclosing(self.writer.write(questions)) as replies:
            async for question, reply in replies:
                self.awaited.written(question.problem.id, reply.index)
                await at_the_judge.acquire()
                task = tasks.create_task(self._finish(question.problem, reply))
                task.add_done_callback(lambda _: at_the_judge.release())

    async def _finish(self, problem: Problem, reply: Reply) -> None:
        """Judge a reply, count it and write it down."""
        sample = await self.workflow.sample(problem, reply)
        result = SampleResult(
            problem_id=problem.id,
            index=reply.index,
            text=sample.text,
            program=sample.program,
            judgement=sample.judgement,
            finish_reason=reply.finish_reason,
            tokens=reply.tokens,
            thinking_tokens=reply.thinking_tokens,
            error=reply.error,
            prompt_tokens=reply.prompt_tokens,
        )
        self.awaited.judged(problem.id, reply.index)
        if self.record:
            self.record(result)
        self._count(result)

    def _count(self, sample: SampleResult) -> None:
        self.tally.add(sample)
        if self.on_progress:
            self.on_progress(self.tally)


def _users_error(group: BaseExceptionGroup[Any]) -> UserError | None:
    """The first of a group that holds nothing but errors of the user."""
    users, others = group.split(UserError)
    if users is None or others is not None:
        return None
    inner: Any = users
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner

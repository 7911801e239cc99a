"""Evaluates a model on problems: plays the environment's episodes and estimates pass@k or the mean reward.

First replies come from a ReplyWriter in any order, and each is continued and judged while others are still
being written. No first reply depends on a verdict or on timing, and the result is a sum over the episodes. So
the same replies give the same result, in any order and in any number of runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from whetstone.core.errors import user_error_of
from whetstone.core.problem import Problem
from whetstone.environments.conversation import Reply
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, KnownReply, ProgramJudge, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.writer import ReplyRequest, ReplyWriter
from whetstone.evaluate.results import Evaluation, SampleResult
from whetstone.evaluate.tally import Tally

# Replies at the judge at once. This keeps it busy, and each reply has its problem's tests in memory.
_JUDGED_PER_CORE = 4
# Seconds after which a failed request is reported.
_LOOK_EVERY_S = 1.0


async def evaluate(
    problems: Iterable[Problem],
    writer: ReplyWriter,
    environment: Environment,
    judge: ProgramJudge,
    plan: SamplingPlan,
    *,
    known: Iterable[SampleResult] = (),
    record: Callable[[SampleResult], None] | None = None,
    total: int = 0,
    on_progress: Callable[[Tally], None] | None = None,
    on_minute: Callable[[Tally, str], None] | None = None,
    on_failures: Callable[[str], None] | None = None,
    minute_s: float = 60.0,
    manifest: dict[str, Any] | None = None,
) -> Evaluation:
    """Evaluate ``plan.n`` episodes of each problem, played by ``environment`` with ``judge``.

    ``known`` replies are counted and not requested again; ``record`` is called with each of the others once
    it is judged. Problems are read lazily; ``total`` is the number of replies to all, for progress displays.
    ``on_progress`` is called once when the known replies are counted, and after each other reply.
    ``on_minute`` is called every ``minute_s`` seconds with a description of the pending replies.
    ``on_failures`` is called when the first request of the writer fails, and each minute in which others did.

    Every reply counts: a failed one, or one whose judge failed, is not right, and is also counted separately.
    Raises UserError if no reply has a verdict, or the writer cannot work at all.
    """
    run = _Run(writer, environment, judge, plan, Tally(plan, total), record, on_progress)
    minutes = asyncio.create_task(run.report_every(minute_s, on_minute, on_failures)) if on_minute else None
    try:
        return await run.run(problems, known, manifest or {})
    finally:
        await writer.close()
        if minutes:
            minutes.cancel()
            # Otherwise a last line could be printed after the result.
            await asyncio.wait([minutes])


_MOST_NAMED = 3


class _PendingReplies:
    """Pending replies by problem and index, each with the start of its wait (monotonic clock)."""

    def __init__(self) -> None:
        self._replies: dict[tuple[str, int], float] = {}
        self._verdicts: dict[tuple[str, int], float] = {}

    def add_request(self, problem_id: str, wanted: Iterable[int]) -> None:
        """Add the missing replies of a request that the writer has taken."""
        now = time.monotonic()
        self._replies.update(((problem_id, index), now) for index in wanted)

    def mark_written(self, problem_id: str, index: int) -> None:
        """Record that a reply is written, and goes to the judge."""
        self._replies.pop((problem_id, index), None)
        self._verdicts[problem_id, index] = time.monotonic()

    def mark_judged(self, problem_id: str, index: int) -> None:
        """Remove a judged reply."""
        self._replies.pop((problem_id, index), None)
        self._verdicts.pop((problem_id, index), None)

    def describe(self, writer_status: str) -> str:
        """Return a description with the oldest by name and the writer's status; empty if nothing is
        pending."""
        parts: list[str] = []
        if self._replies:
            parts.append(_listed("pending", self._replies) + (f" ({writer_status})" if writer_status else ""))
        if self._verdicts:
            parts.append(_listed("at the judge", self._verdicts))
        return "; ".join(parts)


def _listed(what: str, waiting: dict[tuple[str, int], float]) -> str:
    oldest = sorted(waiting, key=lambda key: (waiting[key], key))
    # The oldest replies are named, since a stuck one is among them.
    names = ", ".join(f"{problem} reply {index}" for problem, index in oldest[:_MOST_NAMED])
    more = f" and {len(oldest) - _MOST_NAMED} more" if len(oldest) > _MOST_NAMED else ""
    return f"{what} for {time.monotonic() - waiting[oldest[0]]:.0f} s: {names}{more}"


@dataclass(frozen=True)
class _Question:
    """The episodes of a problem; ``wanted`` are the indices of the missing ones."""

    problem: Problem
    prompt: Prompt | None
    seed: int
    wanted: frozenset[int]
    number: int


@dataclass(frozen=True)
class _Run:
    """A running evaluation."""

    writer: ReplyWriter
    environment: Environment
    judge: ProgramJudge
    plan: SamplingPlan
    tally: Tally
    record: Callable[[SampleResult], None] | None
    on_progress: Callable[[Tally], None] | None
    pending: _PendingReplies = field(default_factory=_PendingReplies)

    async def report_every(
        self,
        seconds: float,
        report: Callable[[Tally, str], None],
        report_failures: Callable[[str], None] | None,
    ) -> None:
        """Report pending replies and failed requests until cancelled."""
        reported, due_s = "", time.monotonic() + seconds
        while True:
            await asyncio.sleep(min(seconds, _LOOK_EVERY_S))
            failures, is_due = self.writer.failures(), time.monotonic() >= due_s
            if report_failures and failures != reported and (is_due or not reported):
                report_failures(failures)
                reported = failures
            if is_due:
                report(self.tally, self.pending.describe(self.writer.waiting()))
                due_s = time.monotonic() + seconds

    async def run(
        self, problems: Iterable[Problem], known: Iterable[SampleResult], manifest: dict[str, Any]
    ) -> Evaluation:
        """Request, judge and count all replies."""
        # Replies may be known only in part, so that a problem is requested again for the others.
        finished: defaultdict[str, set[int]] = defaultdict(set)
        for sample in known:
            finished[sample.problem_id].add(sample.index)
            self.tally.add(sample)
        if self.on_progress:
            self.on_progress(self.tally)
        questions = self._questions(problems, finished)
        try:
            await self._ask_and_judge(questions)
        except BaseExceptionGroup as group:
            # A task group wraps every error. The user gets their own error, without the group.
            raise user_error_of(group) or group from None
        # A writer need not read all requests, and only reading one makes the tally expect its problem. The
        # rest is read here, so that a problem without a reply is an error and does not just disappear.
        for _ in questions:
            pass
        return self.tally.evaluation(manifest)

    def _questions(
        self, problems: Iterable[Problem], finished: Mapping[str, set[int]]
    ) -> Iterator[_Question]:
        """Yield the episodes, problem by problem, without those that are ``finished``."""
        everything = frozenset(range(self.plan.n))
        for number, problem in enumerate(problems):
            self.tally.expect(problem)
            question = _Question(
                problem=problem,
                prompt=self.environment.prompt(problem),
                # By the id, not by the position: with other problems around it a problem keeps its replies.
                seed=self.plan.seed_of(problem.id),
                wanted=everything - finished.get(problem.id, set()),
                number=number,
            )
            self.pending.add_request(problem.id, question.wanted)
            yield question

    async def _ask_and_judge(self, questions: Iterator[_Question]) -> None:
        several_turns = self.environment.turns > 1
        slots = asyncio.Semaphore(_JUDGED_PER_CORE * len(os.sched_getaffinity(0)))
        async with (
            asyncio.TaskGroup() as tasks,
            aclosing(self._first_replies(questions, several_turns)) as replies,
        ):
            async for question, first in replies:
                # This also slows down the writer: while all slots are taken, no further reply is read. The
                # conversations of a batch wait for each other, so all of them are played at once.
                bounded = not several_turns or isinstance(first, int)
                if bounded:
                    await slots.acquire()
                task = tasks.create_task(self._play(question, first))
                if bounded:
                    task.add_done_callback(lambda _: slots.release())

    async def _first_replies(
        self, questions: Iterator[_Question], several_turns: bool
    ) -> AsyncGenerator[tuple[_Question, Reply | int]]:
        """Yield each episode with its first reply, or with its index if it begins without a prompt."""
        asked: dict[int, _Question] = {}

        def requests() -> Iterator[ReplyRequest]:
            for question in questions:
                if question.prompt is None:
                    unprompted.append(question)
                    continue
                asked[question.number] = question
                yield ReplyRequest(
                    problem=question.problem,
                    prompt=question.prompt,
                    n=self.plan.n,
                    seed=question.seed,
                    wanted=question.wanted,
                    number=question.number,
                )

        unprompted: list[_Question] = []
        async with aclosing(self.writer.write(requests(), several_turns=several_turns)) as replies:
            async for request, reply in replies:
                self.pending.mark_written(request.problem.id, reply.index)
                yield asked[request.number], reply
        for question in unprompted:
            for index in sorted(question.wanted):
                yield question, index

    async def _play(self, question: _Question, first: Reply | int) -> None:
        """Play an episode, count it and record it."""
        index = first if isinstance(first, int) else first.index
        with self.writer.barrier.participant():
            episode = Episode(
                question.problem,
                {self.environment.models[0]: self.writer},
                self.judge,
                index=index,
                seed=question.seed,
                first=self._first(question, first),
                options={"stop_at_first_failure": False} if self.environment.needs_all_cases else None,
                wait_turn=lambda: self.writer.barrier.wait(question.number, index),
            )
            rollout = await self.environment.rollout(question.problem, episode)
        # A writer repeats a whole batch, so that its further turns are repeatable.
        if index not in question.wanted:
            return
        result = _result_of(question.problem.id, index, rollout, episode)
        self.pending.mark_judged(question.problem.id, index)
        # The reply is recorded before it is counted, so that a kill in between loses nothing that was shown.
        if self.record:
            self.record(result)
        self._count(result)

    def _first(self, question: _Question, first: Reply | int) -> KnownReply | None:
        if question.prompt is None or isinstance(first, int):
            return None
        return KnownReply(question.prompt, first)

    def _count(self, sample: SampleResult) -> None:
        self.tally.add(sample)
        if self.on_progress:
            self.on_progress(self.tally)


def prompts_of(environment: Environment, problems: Iterable[Problem]) -> Iterator[tuple[str, Prompt]]:
    """Yield the id and the prompt of each problem that has a prompt, for an evaluation's page."""
    for problem in problems:
        prompt = environment.prompt(problem)
        if prompt is not None:
            yield problem.id, prompt


def _result_of(problem_id: str, index: int, rollout: Rollout, episode: Episode) -> SampleResult:
    """Return the result of an episode: its last sample, and the tokens of all its replies."""
    name = episode.models[0]
    samples = rollout.samples.get(name) or []
    replies = [turn.reply for one in episode.conversations for turn in one.turns[one.shared :]]
    failed = next((reply for reply in replies if reply.finish_reason == "failed"), None)
    if not samples:
        error = failed.error if failed else "the environment returned no sample"
        return SampleResult(problem_id, index, "", None, None, "failed", 0, error=error)
    last = samples[-1]
    return SampleResult(
        problem_id=problem_id,
        index=index,
        text=last.text,
        program=last.program,
        judgement=last.judgement,
        finish_reason="failed" if last.finish_reason == "abort" else last.finish_reason,
        tokens=sum(reply.tokens for reply in replies),
        thinking_tokens=_sum_if_known(reply.thinking_tokens for reply in replies),
        error=failed.error if failed else "",
        prompt_tokens=_sum_if_known(reply.prompt_tokens for reply in replies),
        accepted=last.accepted,
        reward=last.reward,
        turns=len(replies),
        metrics=last.metrics,
        dialogue=last.dialogue,
    )


def _sum_if_known(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known or not known else sum(count or 0 for count in known)

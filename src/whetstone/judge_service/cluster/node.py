"""A node's side: a judge of its own, asked and answered in batches of packed messages.

An actor on a Ray cluster is made of this class; it knows nothing of Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from whetstone import __version__
from whetstone.errors import UserError
from whetstone.judge import Judge, Judgement, Problem
from whetstone.judge.languages.table import LANGUAGES
from whetstone.judge.languages.toolchains import runs_here
from whetstone.judge.options import queued_before
from whetstone.judge.values import NotInert, WireError
from whetstone.judge.workers.wire import pack, unpack
from whetstone.judge_service.cluster.messages import (
    Batch,
    Failed,
    Fit,
    Given,
    HasRun,
    Judged,
    JudgeJob,
    NodeSetup,
    Outcome,
    Results,
    RunJob,
    Unfit,
    Unknown,
    Wrong,
)
from whetstone.judge_service.known import KnownProblems, digest_of
from whetstone.judge_service.refusal import Refused
from whetstone.judge_service.runner.pool import Runners
from whetstone.judge_service.runner.tasks import Ran

LONGEST_SILENCE_S = 5.0
"""``take`` answers within this time, also when there is nothing: whoever asks knows that the node lives."""


class NodeJudge:
    """The judge of one node. Made anywhere, used on one event loop."""

    def __init__(self, setup: bytes) -> None:
        self._setup = unpack(setup, NodeSetup)
        self._known = KnownProblems(self._setup.most_known_bytes)
        self._under_way: dict[int, Future[Any]] = {}
        self._outcomes: list[tuple[int, bytes]] = []
        self._some = asyncio.Event()
        self._judge: Judge | None = None
        self._runners: Runners | None = None

    async def hello(self) -> bytes:
        """Start the judge; a packed Fit, or Unfit."""
        try:
            judge = await asyncio.to_thread(self._started)
        except UserError as error:
            return pack(Unfit(str(error)))
        languages = [name for name in LANGUAGES if runs_here(name, judge.isolation)]
        where = judge.isolation, judge.environment
        return pack(Fit(__version__, *where, languages, judge.worker_pids()))

    async def put(self, data: bytes) -> None:
        """Take a packed Batch in."""
        batch = unpack(data, Batch)
        for number in batch.stop:
            if (future := self._under_way.pop(number, None)) is not None:
                future.cancel()
        for problem in batch.problems:
            self._known.add(digest_of(problem), len(problem), unpack(problem, Problem))
        for given in batch.jobs:
            try:
                self._begin(given)
            except (UserError, TypeError, UnicodeEncodeError) as error:
                self._answer(given.number, Wrong(str(error)))
            except Refused:
                self._answer(given.number, Unknown())

    async def take(self) -> bytes:
        """Packed Results: all that there are, or none after a while."""
        if not self._outcomes:
            try:
                async with asyncio.timeout(LONGEST_SILENCE_S):
                    await self._some.wait()
            except TimeoutError:
                return pack(Results([]))
        self._some.clear()
        outcomes, self._outcomes = self._outcomes, []
        return pack(Results(outcomes))

    async def close(self) -> None:
        """End the workers."""
        for part in (self._judge, self._runners):
            if part is not None:
                await asyncio.to_thread(part.close)

    def _started(self) -> Judge:
        settings = dict(self._setup.settings)
        self._judge = Judge(self._setup.workers, **settings)
        self._runners = Runners(self._setup.workers, self._judge.isolation, settings.get("environment"))
        return self._judge

    def _begin(self, given: Given) -> None:
        """Have a job done. Raises UserError, TypeError and Refused as the judge and the problems do."""
        assert self._judge is not None
        assert self._runners is not None
        job = unpack(given.job, JudgeJob, RunJob)
        outcome: Callable[[Any], Outcome]
        if isinstance(job, RunJob):
            future, outcome = self._runners.submit(job.task), HasRun
        else:
            options = {**job.options, "queued_s": queued_before(job.options) + given.queued_s}
            if given.left_s is not None:
                options["deadline_s"] = given.left_s
            problem = self._known.named(job.problem_sha256)
            future, outcome = self._judge.submit(problem, job.program, **options), Judged
        self._under_way[given.number] = future
        loop = asyncio.get_running_loop()
        over = partial(self._over, given.number, outcome)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(over, done))

    def _over(
        self, number: int, outcome: Callable[[Any], Outcome], future: Future[Judgement] | Future[Ran]
    ) -> None:
        if self._under_way.get(number) is not future:
            return  # it was stopped
        del self._under_way[number]
        if future.cancelled():
            self._answer(number, Failed("its node was ending"))
        elif (error := future.exception()) is not None:
            self._answer(number, Failed(f"{type(error).__name__}: {error}"))
        else:
            self._answer(number, outcome(future.result()))

    def _answer(self, number: int, outcome: Outcome) -> None:
        try:
            self._outcomes.append((number, pack(outcome)))
        except (NotInert, WireError) as error:
            self._outcomes.append((number, pack(Wrong(str(error)))))
        self._some.set()

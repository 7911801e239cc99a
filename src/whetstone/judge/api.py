"""The judge as its users hold it: ``Judge`` for plain code, ``AsyncJudge`` for coroutines."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypedDict, Unpack

import msgspec

from whetstone.errors import UserError, did_you_mean
from whetstone.judge.judging import JudgeOptions
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import check_tier, require
from whetstone.judge.values import NotInert
from whetstone.judge.workers.admission import Order
from whetstone.judge.workers.pool import Pool
from whetstone.judge.workers.wire import pack, task
from whetstone.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    Problem,
    Program,
    ProgramChecker,
    ProgramInteractor,
    problem_from,
)
from whetstone.sandbox import Tier
from whetstone.sandbox.run import MOST_STARVED
from whetstone.verdict import Judgement, Verdict

_IN_FLIGHT_PER_WORKER = 4
_SILENCE_SLACK_S = 120.0


class Wishes(TypedDict, total=False):
    """How one program, or all of a ``judge_many``, is to be judged; every key may be left out.

    priority: higher goes first among what waits; what has equal priority goes by deadline, then arrival.
    deadline_s: seconds from submission within which it must be judged; afterwards it is JUDGE_ERROR, for a
        judge that is late is no verdict, and what runs of it is stopped.
    max_cases: judge only so many of the problem's cases, at least 1; None, the default, judges all.
    subset_seed: which cases these are is a function of this seed and the problem's id alone, so all
        programs for a problem meet the same ones; ``CaseJudgement.index`` says which.
    stop_at_first_failure, confirm_time_limit: for these programs, instead of what the judge was built with.
    """

    priority: int
    deadline_s: float | None
    max_cases: int | None
    subset_seed: int
    stop_at_first_failure: bool
    confirm_time_limit: bool


Pair = tuple[Problem | dict[str, Any], Program | None]


class _Submitter:
    """What both faces share: checking a pair and queueing it."""

    def __init__(
        self,
        workers: int = 0,
        minimum_tier: str = "restricted",
        stop_at_first_failure: bool = False,
        confirm_time_limit: bool = True,
        tier: str | None = None,
        fork_per_case: bool = True,
    ) -> None:
        """``workers`` 0 means one for each core. The processes start here.

        ``tier`` asks for exactly that isolation instead of the strongest from ``minimum_tier`` on.
        Raises SandboxUnavailable when this machine cannot isolate at ``minimum_tier`` (restricted, userns
        or root), UserError for an argument that is none.
        """
        if workers < 0:
            raise UserError(f"workers is {workers}; give 0 for one on each core, or a positive number")
        self._options = JudgeOptions(stop_at_first_failure, confirm_time_limit, fork_per_case=fork_per_case)
        exactly = _tier(tier) if tier is not None else None
        self._pool = Pool(workers or len(os.sched_getaffinity(0)), _tier(minimum_tier), exactly)

    @property
    def isolation(self) -> str:
        """The tier that holds the programs."""
        return self._pool.isolation

    @property
    def window(self) -> int:
        """How many programs ``judge_many`` keeps in flight."""
        return self._pool.size * _IN_FLIGHT_PER_WORKER

    def submit(
        self, problem: Problem | dict[str, Any], program: Program | None, wishes: Wishes
    ) -> Future[Judgement]:
        """Queue one program. Raises UserError for a problem, language or wish that cannot be served."""
        problem = problem_from(problem)
        if program is None or not program.source.strip():
            return _ready(Judgement(Verdict.NO_CODE, [], 0.0, self.isolation, "there is no program"))
        _check_languages(problem, program, self.isolation)
        try:
            data = pack(task(problem, program, _options(self._options, wishes)))
        except NotInert as error:
            raise UserError(f"problem {problem.id!r} holds {error}") from None
        limits = problem.limits
        # The wall clock limit of a run and of its checker, and what starting anew takes, on a busy machine.
        silence_s = (1 + MOST_STARVED) * 2 * (15 + 10 * limits.cpu_s) + _SILENCE_SLACK_S
        return self._pool.submit(
            Order(data, silence_s, wishes.get("priority", 0), _deadline(wishes.get("deadline_s")))
        )

    def worker_pids(self) -> list[int]:
        """The ids of the worker processes."""
        return self._pool.worker_pids()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()


class Judge:
    """Judges programs on worker processes. A context manager; thread-safe.

    See ``whetstone.judge.judging`` for how cases become a verdict.
    """

    def __init__(
        self,
        workers: int = 0,
        minimum_tier: str = "restricted",
        stop_at_first_failure: bool = False,
        confirm_time_limit: bool = True,
        tier: str | None = None,
        fork_per_case: bool = True,
    ) -> None:
        """``workers`` 0 means one for each core; ``minimum_tier`` is restricted, userns or root.

        ``tier`` asks for exactly one of these instead of the strongest that this machine offers. Without
        ``fork_per_case`` the cases of a Python program share a process: several times cheaper, and marked
        (``Judgement.shared_process``); see ``whetstone.judge.kinds.sequence``.

        Raises SandboxUnavailable when this machine cannot isolate that strictly, UserError for an
        argument that is none.
        """
        self._submitter = _Submitter(
            workers, minimum_tier, stop_at_first_failure, confirm_time_limit, tier, fork_per_case
        )

    @property
    def isolation(self) -> str:
        """The tier that holds the programs."""
        return self._submitter.isolation

    def worker_pids(self) -> list[int]:
        """The ids of the worker processes, for those who watch or measure them."""
        return self._submitter.worker_pids()

    def submit(
        self, problem: Problem | dict[str, Any], program: Program | None, **wishes: Unpack[Wishes]
    ) -> Future[Judgement]:
        """Queue one program (None: there was none); ``cancel`` on the future also stops a running program.

        Any number may wait; each keeps its packed problem and program in memory. Raises UserError for a
        problem that does not fit the schema, a language that is not here, or a wish that is none.
        """
        return self._submitter.submit(problem, program, wishes)

    def judge(
        self, problem: Problem | dict[str, Any], program: Program | None, **wishes: Unpack[Wishes]
    ) -> Judgement:
        """Judge one program and wait for the judgement. See ``submit``."""
        future = self.submit(problem, program, **wishes)
        try:
            return future.result()
        finally:
            future.cancel()  # has an effect only when the wait was interrupted

    def judge_many(self, pairs: Iterable[Pair], **wishes: Unpack[Wishes]) -> Iterator[Judgement]:
        """Judge all pairs and yield the judgements in input order, reading only a little ahead."""
        flying: deque[Future[Judgement]] = deque()
        try:
            for problem, program in pairs:
                flying.append(self._submitter.submit(problem, program, wishes))
                if len(flying) >= self._submitter.window:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
        finally:
            for future in flying:
                future.cancel()

    def close(self) -> None:
        """End the workers. Judgements still awaited are cancelled."""
        self._submitter.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncJudge:
    """``Judge`` for coroutines: any number of judgements may be awaited at once."""

    def __init__(
        self,
        workers: int = 0,
        minimum_tier: str = "restricted",
        stop_at_first_failure: bool = False,
        confirm_time_limit: bool = True,
        tier: str | None = None,
        fork_per_case: bool = True,
    ) -> None:
        """The same as ``Judge``. Starting takes a moment, in which the event loop does not run."""
        self._submitter = _Submitter(
            workers, minimum_tier, stop_at_first_failure, confirm_time_limit, tier, fork_per_case
        )

    @property
    def isolation(self) -> str:
        """The tier that holds the programs."""
        return self._submitter.isolation

    def worker_pids(self) -> list[int]:
        """The ids of the worker processes, for those who watch or measure them."""
        return self._submitter.worker_pids()

    async def judge(
        self, problem: Problem | dict[str, Any], program: Program | None, **wishes: Unpack[Wishes]
    ) -> Judgement:
        """Judge one program; see ``Judge.submit``. A cancelled await stops it, waiting or running."""
        return await asyncio.wrap_future(self._submitter.submit(problem, program, wishes))

    async def judge_many(self, pairs: Iterable[Pair], **wishes: Unpack[Wishes]) -> AsyncIterator[Judgement]:
        """Judge all pairs and yield the judgements in input order, reading only a little ahead."""
        flying: deque[asyncio.Future[Judgement]] = deque()
        try:
            for problem, program in pairs:
                flying.append(asyncio.wrap_future(self._submitter.submit(problem, program, wishes)))
                if len(flying) >= self._submitter.window:
                    yield await flying.popleft()
            while flying:
                yield await flying.popleft()
        finally:
            for future in flying:
                future.cancel()

    async def close(self) -> None:
        """End the workers. Judgements still awaited are cancelled."""
        await asyncio.to_thread(self._submitter.close)

    async def __aenter__(self) -> AsyncJudge:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _tier(name: str) -> Tier:
    labels = {tier.label: tier for tier in Tier}
    if name not in labels:
        raise UserError(f"unknown tier `{name}`{did_you_mean(name, labels)} (known: {', '.join(labels)})")
    return labels[name]


def _check_languages(problem: Problem, program: Program, isolation: str) -> None:
    """Raise UserError for a language that is unknown, not here, or not one the problem's tests can judge."""
    whose = f"the program for problem {problem.id!r}"
    language = language_named(program.language, whose)
    require(language, whose)
    called = "call" if isinstance(problem.tests, CallTests) else "assert"
    if language.run and isinstance(problem.tests, CallTests | AssertTests):
        raise UserError(
            f"{whose} is in `{language.name}`, but tests of kind `{called}` call Python functions"
        )
    check_tier(language, isolation, whose)
    judges = problem.tests.interactor if isinstance(problem.tests, InteractiveTests) else problem.checker
    if isinstance(judges, ProgramChecker | ProgramInteractor):
        whose = f"the checker or interactor of problem {problem.id!r}"
        language = language_named(judges.language, whose)
        require(language, whose)
        check_tier(language, isolation, whose)


def _options(options: JudgeOptions, wishes: Wishes) -> JudgeOptions:
    """The judge's options with the subset that is wished for. Raises UserError."""
    max_cases = wishes.get("max_cases")
    if max_cases is not None and max_cases < 1:
        raise UserError(f"max_cases is {max_cases}; give at least 1, or None for all cases")
    return msgspec.structs.replace(
        options,
        max_cases=max_cases,
        subset_seed=wishes.get("subset_seed", 0),
        stop_at_first_failure=wishes.get("stop_at_first_failure", options.stop_at_first_failure),
        confirm_time_limit=wishes.get("confirm_time_limit", options.confirm_time_limit),
    )


def _deadline(deadline_s: float | None) -> float:
    """A deadline on the monotonic clock. Raises UserError."""
    if deadline_s is None:
        return math.inf
    if not deadline_s > 0:
        raise UserError(f"deadline_s is {deadline_s}; give a positive number of seconds, or None")
    return time.monotonic() + deadline_s


def _ready(judgement: Judgement) -> Future[Judgement]:
    future: Future[Judgement] = Future()
    future.set_result(judgement)
    return future

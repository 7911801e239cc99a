"""``Judge``: programs are judged on worker processes. ``async_judge`` has the same for coroutines."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from whetstone.errors import UserError, did_you_mean
from whetstone.judge.answers.comparisons import add_comparisons, check_comparison
from whetstone.judge.environments.environment import Environment, check_reachable, environment_named
from whetstone.judge.in_order import Pair, in_order
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import check_tier, require
from whetstone.judge.options import JudgeOptions, options_with
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
from whetstone.sandbox.job import MOST_STARVED
from whetstone.verdict import Judgement, Verdict

_IN_FLIGHT_PER_WORKER = 4
_SILENCE_SLACK_S = 120.0


class Judge:
    """Judges programs on worker processes. A context manager; thread-safe.

    In a process forked off from the one that made it, it starts workers of its own when it is first used.
    See ``whetstone.judge.judging`` for how cases become a verdict.
    """

    def __init__(
        self,
        workers: int = 0,
        *,
        minimum_tier: str = "restricted",
        tier: str | None = None,
        environment: str | os.PathLike[str] | None = None,
        comparisons: Iterable[str] = (),
        **options: Any,
    ) -> None:
        """Start the worker processes; ``workers`` 0 means one for each core.

        minimum_tier: the weakest isolation to run with: restricted, userns or root.
        tier: exactly one of these, instead of the strongest that this machine offers.
        environment: the packages that Python programs and tests may import: the name of an environment that
            ``whetstone judge environment create`` made, or the folder of a virtual environment, which is
            shown whole. None: what is installed beside Whetstone of the extra ``programs``.
        comparisons: modules that hold comparisons of other graders (``whetstone.graders.COMPARISONS``), which
            problems can then name.
        options: how programs are judged; see ``JudgeOptions``.

        Raises SandboxUnavailable when this machine cannot isolate as asked, TypeError for an unknown option,
        UserError for a value that is none.
        """
        if type(workers) is not int or workers < 0:
            raise UserError(f"workers is {workers!r}; give 0 for one on each core, or a positive number")
        self._options = options_with(JudgeOptions(), options)
        self._environment = environment_named(environment)
        self._comparisons = (comparisons,) if isinstance(comparisons, str) else tuple(comparisons)
        self._modes = add_comparisons(self._comparisons)
        self._size = workers or len(os.sched_getaffinity(0))
        self._tiers = _tier(minimum_tier), None if tier is None else _tier(tier)
        self._starting = threading.Lock()
        self._pool: Pool | None = None
        self._closed = False
        self.isolation = self._running().isolation
        """The tier that holds the programs."""
        try:
            check_reachable(self._environment, self.isolation)
        except UserError:
            self.close()
            raise
        _JUDGES.add(self)

    @property
    def environment(self) -> str:
        """The packages that Python code may import, as judgements name them."""
        return self._environment.label

    @property
    def window(self) -> int:
        """How many programs ``judge_many`` keeps in flight."""
        return self._size * _IN_FLIGHT_PER_WORKER

    def worker_pids(self) -> list[int]:
        """The ids of the worker processes, for those who watch or measure them."""
        return [] if self._pool is None else self._pool.worker_pids()

    def submit(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Future[Judgement]:
        """Queue one program (None: there was none); ``cancel`` on the future also stops a running program.

        ``options`` are those of ``JudgeOptions``, instead of what the judge was built with. Any number may
        wait; each keeps its packed problem and program in memory. Raises UserError for a problem that does
        not fit the schema, a language that is not here, or a value that is none; TypeError for an unknown
        option, or what is no problem or program at all.
        """
        problem = problem_from(problem)
        if not isinstance(program, Program | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"the program is a {type(program).__name__}; give a Program(language, source), or None"
            )
        wanted = options_with(self._options, options)
        if program is None or not program.source.strip():
            verdict = (Verdict.NO_CODE, [], 0.0, self.isolation, "there is no program")
            return _ready(Judgement(*verdict, environment=self.environment))
        check_comparison(problem, self._modes)
        _check_languages(problem, program, self.isolation, self._environment)
        try:
            data = pack(task(problem, program, wanted))
        except NotInert as error:
            raise UserError(f"problem {problem.id!r} holds {error}") from None
        # The wall clock limit of a run and of its checker, and what starting anew takes, on a busy machine.
        silence_s = (1 + MOST_STARVED) * 2 * (15 + 10 * problem.limits.cpu_s) + _SILENCE_SLACK_S
        deadline = math.inf if wanted.deadline_s is None else time.monotonic() + wanted.deadline_s
        order = Order(data, silence_s, wanted.priority, deadline, queued_s=wanted.queued_s)
        return self._running().submit(order)

    def judge(self, problem: Problem | dict[str, Any], program: Program | None, **options: Any) -> Judgement:
        """Judge one program and wait for the judgement. See ``submit``."""
        future = self.submit(problem, program, **options)
        try:
            return future.result()
        finally:
            future.cancel()  # has an effect only when the wait was interrupted

    def judge_many(self, pairs: Iterable[Pair], **options: Any) -> Iterator[Judgement]:
        """Judge all pairs and yield the judgements in input order, reading only a little ahead."""
        return in_order(self.submit, pairs, self.window, options)

    def close(self) -> None:
        """End the workers. Judgements still awaited are cancelled."""
        self._closed = True
        if self._pool is not None:
            self._pool.close()

    def _running(self) -> Pool:
        """The workers, started by the first who asks in this process. Raises RuntimeError once closed."""
        with self._starting:
            if self._pool is None:
                if self._closed:
                    raise RuntimeError("this judge is closed")
                self._pool = Pool(self._size, *self._tiers, self._environment, self._comparisons)
            return self._pool

    def _leave_behind(self) -> None:
        """In a forked process: the workers are the other process's, and so are the threads that feed them."""
        self._starting = threading.Lock()
        if self._pool is not None:
            self._pool.disown()
            self._pool = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_JUDGES: weakref.WeakSet[Judge] = weakref.WeakSet()


def _leave_all_behind() -> None:
    for judge in _JUDGES:
        judge._leave_behind()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_leave_all_behind)


def _tier(name: str) -> Tier:
    labels = {tier.label: tier for tier in Tier}
    if name not in labels:
        hint = did_you_mean(str(name), labels)
        raise UserError(f"unknown tier `{name}`{hint} (known: {', '.join(labels)})")
    return labels[name]


def _check_languages(problem: Problem, program: Program, isolation: str, environment: Environment) -> None:
    """Raise UserError for a language that is unknown, not here, or not one the problem's tests can judge."""
    whose = f"the program for problem {problem.id!r}"
    language = language_named(program.language, whose)
    require(language, whose, environment)
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
        require(language, whose, environment)
        check_tier(language, isolation, whose)


def _ready(judgement: Judgement) -> Future[Judgement]:
    future: Future[Judgement] = Future()
    future.set_result(judgement)
    return future

"""``Judge`` judges programs on worker processes. ``async_judge`` has the same for coroutines."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.problem import (
    AssertTests,
    CallTests,
    Problem,
    Program,
    deciding_program,
    problem_from,
)
from whetstone.core.verdict import Judgement, Verdict
from whetstone.judge.answers.comparisons import add_comparisons, check_comparison
from whetstone.judge.environments.environment import (
    PackageEnvironment,
    check_reachable,
    created_environment,
    environment_named,
)
from whetstone.judge.in_order import BlockingJudge, check_program, check_tests
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import check_tier, require
from whetstone.judge.options import JudgeOptions, options_with
from whetstone.judge.values import NotInert
from whetstone.judge.workers.job_queue import QueuedJob
from whetstone.judge.workers.pool import Pool
from whetstone.judge.workers.wire import RunReply, RunTask, pack, task
from whetstone.sandbox import Tier
from whetstone.sandbox.job import MOST_STARVED

_IN_FLIGHT_PER_WORKER = 4
_SILENCE_SLACK_S = 120.0


class Judge(BlockingJudge):
    """Judges programs on worker processes. A context manager; thread-safe.

    In a fork of the process that created it, it starts its own workers when it is first used.
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
            ``whetstone judge environment create`` made, or the folder of a virtual environment, all of which
            programs can read. None: the installed packages of Whetstone's extra ``programs``. A problem that
            names an environment is judged in that one.
        comparisons: modules that define comparisons of other graders
            (``whetstone_graders.COMPARISONS``), which problems can then name.
        options: how programs are judged; see ``JudgeOptions``.

        Raises SandboxUnavailable if this machine does not offer the tier, TypeError for an unknown option,
        UserError for an invalid value.
        """
        if type(workers) is not int or workers < 0:
            raise UserError(f"workers is {workers!r}; give 0 for one on each core, or a positive number")
        self._options = options_with(JudgeOptions(), options)
        self._environment = environment_named(environment)
        self._named: dict[str, PackageEnvironment] = {}
        self._comparisons = (comparisons,) if isinstance(comparisons, str) else tuple(comparisons)
        self._modes = add_comparisons(self._comparisons)
        self._size = workers or len(os.sched_getaffinity(0))
        self._tiers = _tier(minimum_tier), None if tier is None else _tier(tier)
        self._starting = threading.Lock()
        self._pool: Pool | None = None
        self._closed = False
        self.isolation = self._started_pool().isolation
        """The isolation tier of the programs."""
        try:
            check_reachable(self._environment, self.isolation)
        except UserError:
            self.close()
            raise
        super().__init__()

    @property
    def minimum_tier(self) -> str:
        """The weakest isolation that programs may run with."""
        return self._tiers[0].name.lower()

    @property
    def environment(self) -> str:
        """The packages that Python code may import, as judgements name them."""
        return self._environment.label

    @property
    def window(self) -> int:
        """How many programs ``judge_many`` keeps in flight."""
        return self._size * _IN_FLIGHT_PER_WORKER

    def worker_pids(self) -> list[int]:
        """Return the ids of the worker processes, for monitoring and measurements."""
        return [] if self._pool is None else self._pool.worker_pids()

    def submit(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Future[Judgement]:
        """Queue one program (None: the reply had none). ``cancel`` of the future stops a running program.

        ``options`` are fields of ``JudgeOptions`` that replace those of the judge. Any number of programs may
        wait; each keeps its packed problem and program in memory. Raises UserError for a problem that does
        not fit the schema, a language that is not installed or an invalid value; TypeError for an unknown
        option, or for an argument that is no problem or program.
        """
        problem = problem_from(problem)
        check_program(program)
        check_tests(problem)
        job_options = options_with(self._options, options)
        environment = self._environment_of(problem)
        if program is None or not program.source.strip():
            verdict = (Verdict.NO_CODE, [], 0.0, self.isolation, "there is no program")
            future: Future[Judgement] = Future()
            future.set_result(Judgement(*verdict, environment=environment.label))
            return future
        check_comparison(problem, self._modes)
        _check_languages(problem, program, self.isolation, environment)
        own = None if environment is self._environment else environment
        try:
            data = pack(task(problem, program, job_options, own))
        except NotInert as error:
            raise UserError(f"problem {problem.id!r} contains {error}") from None
        # A worker reports at least once per run. So it may be silent for the wall clock limits of a run and
        # of its checker on a busy machine, and for the start of a new fork-server.
        silence_s = (1 + MOST_STARVED) * 2 * (15 + 10 * problem.limits.cpu_s) + _SILENCE_SLACK_S
        deadline = math.inf if job_options.deadline_s is None else time.monotonic() + job_options.deadline_s
        job = QueuedJob(data, silence_s, job_options.priority, deadline, job_options.queued_s)
        job.environment = environment.label
        return self._started_pool().submit(job)

    def _environment_of(self, problem: Problem) -> PackageEnvironment:
        """Return the environment that a problem names, or the judge's. Raises UserError."""
        if not problem.environment:
            return self._environment
        found = self._named.get(problem.environment)
        if found is None:
            try:
                found = created_environment(problem.environment)
                check_reachable(found, self.isolation)
            except UserError as error:
                raise UserError(f"problem {problem.id!r}: {error}") from None
            # It is read once. Its packages must not change while the judge uses it.
            found = self._environment if found == self._environment else found
            self._named[problem.environment] = found
        return found

    def run(self, task: RunTask) -> Future[RunReply]:
        """Queue one program that is run once and not judged. ``cancel`` of the future stops it."""
        # The sandbox extends the wall limit of a program that gets no core. Compilers also need time.
        silence_s = (1 + MOST_STARVED) * task.wall_s + 2 * _SILENCE_SLACK_S
        return self._started_pool().submit(QueuedJob(pack(task), silence_s, is_run=True))

    def close(self) -> None:
        """End the workers. Pending judgements are cancelled."""
        self._closed = True
        if self._pool is not None:
            self._pool.close()

    def _started_pool(self) -> Pool:
        """Return the workers. The first call in a process starts them. Raises RuntimeError once closed."""
        with self._starting:
            if self._pool is None:
                if self._closed:
                    raise RuntimeError("this judge is closed")
                self._pool = Pool(self._size, *self._tiers, self._environment, self._comparisons)
            return self._pool

    def reset_after_fork(self) -> None:
        """In a forked process, forget the workers: they and their threads belong to the parent."""
        self._starting = threading.Lock()
        if self._pool is not None:
            self._pool.disown()
            self._pool = None


def _tier(name: str) -> Tier:
    labels = {tier.label: tier for tier in Tier}
    if name not in labels:
        hint = did_you_mean(str(name), labels)
        raise UserError(f"unknown tier `{name}`{hint} (known: {', '.join(labels)})")
    return labels[name]


def _check_languages(
    problem: Problem, program: Program, isolation: str, environment: PackageEnvironment
) -> None:
    """Raise UserError for a language that is unknown, not installed, or not usable with these tests."""
    whose = f"the program for problem {problem.id!r}"
    language = language_named(program.language, whose)
    require(language, whose, environment)
    called = "call" if isinstance(problem.tests, CallTests) else "assert"
    if language.run and isinstance(problem.tests, CallTests | AssertTests):
        raise UserError(
            f"{whose} is in `{language.name}`, but tests of kind `{called}` call Python functions"
        )
    check_tier(language, isolation, whose)
    if decides := deciding_program(problem):
        whose = f"the checker or interactor of problem {problem.id!r}"
        language = language_named(decides.language, whose)
        require(language, whose, environment)
        check_tier(language, isolation, whose)

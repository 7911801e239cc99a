"""``ClusterJudge``: the interface of ``Judge`` over the machines of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from whetstone.errors import UserError
from whetstone.judge.in_order import Pair, in_order
from whetstone.judge.languages.table import language_named
from whetstone.judge.options import JudgeOptions, options_with
from whetstone.judge.values import NotInert
from whetstone.judge.workers.wire import pack
from whetstone.judge_service.cluster.fleet import Fleet
from whetstone.judge_service.cluster.link import Job
from whetstone.judge_service.cluster.members import Members, Say
from whetstone.judge_service.cluster.messages import JudgeJob, NodeState, RunJob
from whetstone.judge_service.cluster.router import Router
from whetstone.judge_service.cluster.routing import PER_WORKER
from whetstone.judge_service.runner.tasks import Ran, RunTask
from whetstone.judge_service.sending import Packed
from whetstone.problem import (
    InteractiveTests,
    Problem,
    Program,
    ProgramChecker,
    ProgramInteractor,
    problem_from,
)
from whetstone.verdict import Judgement, Verdict

START_S = 180.0
"""So long the first node may take until it judges."""
GIVE_UP_S = 300.0
"""When no node has been there for so long, what waits is JUDGE_ERROR."""
_PACKED_BYTES = 64 << 20


class ClusterJudge:
    """Judges programs on the nodes of a fleet. A context manager; thread-safe; for one process."""

    def __init__(self, fleet: Fleet, workers: int = 0, **settings: Any) -> None:
        """Start a judge on each machine, and wait for the first; ``fleet`` is closed with this.

        workers: of each node; 0 means one for each core of it.
        settings: the options of ``JudgeOptions``, and ``minimum_tier``, ``environment`` and ``comparisons``
            as ``Judge`` has them. They hold for every node.

        Raises UserError where no node can judge as asked.
        """
        if type(workers) is not int or workers < 0:
            raise UserError(f"workers is {workers!r}; give 0 for one on each core, or a positive number")
        options = {name: settings[name] for name in JudgeOptions.__struct_fields__ if name in settings}
        self._options = options_with(JudgeOptions(), options)
        self._fleet = fleet
        self._router = Router()
        self._members = Members(fleet, self._router, workers, settings)
        self._numbers = itertools.count()
        self._packed = Packed(_PACKED_BYTES)
        self._known = threading.Event()
        self._ending = asyncio.Event()
        self._members.changed = self._changed
        self._on_change: Callable[[], None] = lambda: None
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="cluster-router", daemon=True)
        self._thread.start()
        try:
            self._wait_for_first()
        except BaseException:
            self.close()
            raise

    @property
    def isolation(self) -> str:
        """The weakest tier of the nodes that judge."""
        return self._members.isolation

    @property
    def environment(self) -> str:
        """The packages that Python code may import, the same on every node."""
        return self._members.first.environment if self._members.first else ""

    @property
    def languages(self) -> list[str]:
        """Those that every node has."""
        return self._members.first.languages if self._members.first else []

    @property
    def workers(self) -> int:
        """Of all nodes that judge now."""
        return self._router.routing.workers

    @property
    def window(self) -> int:
        """How many programs ``judge_many`` keeps in flight."""
        return max(self.workers, 1) * PER_WORKER

    def worker_pids(self) -> list[int]:
        """The ids of the worker processes, each on its own machine."""
        return self._members.pids()

    def nodes(self) -> list[NodeState]:
        """Every machine of the cluster, as it fares now."""
        return self._members.states()

    def counts(self) -> dict[str, int]:
        """What became of lost nodes and their programs."""
        router = self._router
        return {"losses": self._members.losses, "rerun": router.rerun, "given_up": router.given_up}

    def listen(self, say: Say, on_change: Callable[[], None]) -> None:
        """From now on, tell of nodes that come and go; both are called on the router's thread."""
        self._members.say, self._on_change = say, on_change

    def submit(
        self, problem: Problem | dict[str, Any], program: Program | None, **options: Any
    ) -> Future[Judgement]:
        """Queue one program; see ``Judge.submit``. What only a node can tell is an error of the future."""
        problem = problem_from(problem)
        if not isinstance(program, Program | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"the program is a {type(program).__name__}; give a Program(language, source), or None"
            )
        wanted = options_with(self._options, options)
        if program is None or not program.source.strip():
            return _ready(self._unjudged(Verdict.NO_CODE, "there is no program"))
        self._check_languages(problem, program)
        sent = self._packed(problem)
        digest = sent.sha256 or hashlib.sha256(sent.data).hexdigest()
        options.pop("deadline_s", None)
        try:
            data = pack(JudgeJob(digest, program, options))
        except NotInert as error:
            raise UserError(f"the program for problem {problem.id!r} holds {error}") from None

        def failed(reason: str) -> Judgement:
            return self._unjudged(Verdict.JUDGE_ERROR, f"not judged: {reason}")

        deadline = math.inf if wanted.deadline_s is None else time.monotonic() + wanted.deadline_s
        job = Job(next(self._numbers), data, wanted.priority, deadline, Future[Any](), failed)
        job.problem, job.problem_sha256 = sent.data, digest
        return self._begin(job)

    def run(self, task: RunTask) -> Future[Ran]:
        """Run a program on a node; ``cancel`` on the future ends it."""
        data = pack(RunJob(task))
        job = Job(next(self._numbers), data, 0, math.inf, Future[Any](), lambda why: Ran(fault=why))
        return self._begin(job)

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
        """End the judges of all nodes. Judgements still awaited are cancelled."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._fleet.close()

    def __enter__(self) -> ClusterJudge:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self, job: Job) -> Future[Any]:
        if self._closed:
            raise RuntimeError("this judge is closed")
        job.future.add_done_callback(lambda future: self._over(job.number, future))
        self._loop.call_soon_threadsafe(self._router.add, job)
        return job.future

    def _over(self, number: int, future: Future[Any]) -> None:
        if future.cancelled():
            future.set_running_or_notify_cancel()  # for those who wait on many futures at once
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._router.drop, number)

    def _unjudged(self, verdict: Verdict, reason: str) -> Judgement:
        score = None if verdict is Verdict.JUDGE_ERROR else 0.0
        return Judgement(verdict, [], score, self.isolation, reason[:500], environment=self.environment)

    def _check_languages(self, problem: Problem, program: Program) -> None:
        """Raise UserError for a language that not every node has: it would depend on the node."""
        self._check_language(program.language, f"the program for problem {problem.id!r}")
        judges = problem.tests.interactor if isinstance(problem.tests, InteractiveTests) else problem.checker
        if isinstance(judges, ProgramChecker | ProgramInteractor):
            self._check_language(judges.language, f"the checker or interactor of problem {problem.id!r}")

    def _check_language(self, name: str, whose: str) -> None:
        language = language_named(name, whose)
        if language.name not in self.languages:
            known = ", ".join(self.languages)
            raise UserError(f"{whose} is in `{language.name}`, which not every node has (all have: {known})")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._work())
        self._loop.close()

    async def _work(self) -> None:
        """Watch the nodes until the end."""
        ending = asyncio.create_task(self._ending.wait())
        others = [asyncio.create_task(self._members.watch()), asyncio.create_task(self._give_up())]
        try:
            await asyncio.wait([ending, *others], return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():  # a defect of ours: say so, and let nobody wait
                self._router.fail_all("the router failed")
                await asyncio.gather(*others)
        finally:
            self._closed = True
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._router.cancel_all()

    async def _give_up(self) -> None:
        """Let nobody wait for ever for a node."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            if self.workers:
                last = time.monotonic()
            elif time.monotonic() - last > GIVE_UP_S:
                self._router.fail_all(f"no node has been there for {GIVE_UP_S:.0f} s")

    def _changed(self) -> None:
        self._known.set()
        self._on_change()

    def _wait_for_first(self) -> None:
        deadline = time.monotonic() + START_S
        while self._members.first is None:
            states = self._members.states()
            if states and all(state.state == "left_out" for state in states):
                break
            if time.monotonic() > deadline:
                break
            self._known.wait(0.5)
            self._known.clear()
        else:
            return
        said = "; ".join(f"{state.name}: {state.reason}" for state in self._members.states())
        said = said or "no machine of it has a core to judge on (ray status; --num-cpus when it was started)"
        raise UserError(f"no node of the cluster can judge: {said}")


def _ready(judgement: Judgement) -> Future[Judgement]:
    future: Future[Judgement] = Future()
    future.set_result(judgement)
    return future

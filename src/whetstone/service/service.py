"""The service behind all endpoints: it admits programs, has them judged, and counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.core.http.refusal import RequestRefused, bad_request, too_late
from whetstone.core.problem import Problem, case_count
from whetstone.judge import Judge, Judgement, Program, Verdict
from whetstone.judge.languages.table import LANGUAGES
from whetstone.judge.languages.toolchains import runs_here
from whetstone.judge.options import queued_before
from whetstone.judge.workers.wire import RunReply, RunTask
from whetstone.service.case_parallel import goes_on, joined, most_parts, parts_of
from whetstone.service.client import JudgeClient
from whetstone.service.fair_queue import Gate
from whetstone.service.messages import Info, NodeState
from whetstone.service.problem_cache import KnownProblems
from whetstone.service.server_link import ServersUnavailable
from whetstone.service.settings import ServiceLimits
from whetstone.service.telemetry import Telemetry

# One running program and the next one, so that no core waits for the event loop.
PLACES_PER_WORKER = 2
_NODES_EVERY_S = 1.0
T = TypeVar("T")


class Service:
    """A judge, the gate in front of it, the known problems and the counters. One event loop uses it."""

    def __init__(
        self,
        judge: Judge | JudgeClient,
        workers: int,
        limits: ServiceLimits,
        telemetry: Telemetry,
        nodes: Callable[[], list[NodeState]] | None = None,
    ) -> None:
        """``judge`` has this number of ``workers``. The caller closes it.

        nodes: returns the states of the nodes of a cluster, if ``judge`` is the client of its servers.
        """
        self.judge = judge
        self._nodes = nodes
        if isinstance(judge, JudgeClient):
            places, languages = judge.window, judge.languages
        else:
            places = PLACES_PER_WORKER * workers
            languages = [name for name in LANGUAGES if runs_here(name, judge.isolation)]
        self.limits = limits
        self.telemetry = telemetry
        self.gate = Gate(places, limits.most_waiting)
        self.known = KnownProblems(limits.known_problem_bytes)
        self.draining = False
        self.held_bytes = 0
        self.workers = workers
        self.info = Info(
            version=__version__,
            isolation=judge.isolation,
            environment=judge.environment,
            workers=workers,
            window=judge.window,
            languages=languages,
            most_body_bytes=limits.most_body_bytes,
            most_cases=limits.most_cases,
            most_memory_mb=limits.most_memory_mb,
            longest_deadline_s=limits.longest_deadline_s,
        )
        telemetry.waiting.set_function(lambda: self.gate.waiting)
        telemetry.running.set_function(lambda: self.gate.taken)
        telemetry.held_bytes.labels("bodies").set_function(lambda: self.held_bytes)
        telemetry.held_bytes.labels("known_problems").set_function(lambda: self.known.held_bytes)

    @property
    def can_judge(self) -> bool:
        """Whether a worker runs."""
        if isinstance(self.judge, Judge):
            return bool(self.judge.worker_pids())
        return self.workers > 0

    def nodes(self) -> list[NodeState]:
        """Return the states of a cluster's nodes. The list is empty on a single machine."""
        return self._nodes() if self._nodes is not None else []

    def watch(self) -> None:
        """Start to follow the nodes of the cluster, if there is one. Called on the event loop."""
        if self._nodes is not None:
            self._watching = asyncio.create_task(self._watch_nodes())

    async def _watch_nodes(self) -> None:
        """Log changes of nodes, and adapt the number of places to the servers that are ready."""
        known: dict[str, tuple[str, str]] = {}
        self.telemetry.count_nodes(self.nodes)
        while True:
            states = {state.name: state for state in self.nodes()}
            for name, state in states.items():
                if known.get(name) != (state.state, state.reason):
                    about = {"state": state.state, "workers": state.workers, "reason": state.reason}
                    self.telemetry.say("node", node=name, **about)
            for name in known.keys() - states.keys():
                self.telemetry.say("node", node=name, state="lost")
            known = {name: (state.state, state.reason) for name, state in states.items()}
            self.workers = sum(state.workers for state in states.values() if state.state == "ready")
            self.gate.resize(max(self.judge.window, 1))
            about = {"workers": max(self.workers, 1), "window": self.judge.window}
            self.info = msgspec.structs.replace(self.info, **about, isolation=self.judge.isolation)
            await asyncio.sleep(_NODES_EVERY_S)

    async def forwarded(
        self, client: str, path: str, body: bytes, content_type: str, asked_s: float | None
    ) -> Response | None:
        """Return the response of a server of the cluster. None on a single machine. Raises RequestRefused."""
        if not isinstance(self.judge, JudgeClient):
            return None
        deadline = self.deadline(asked_s)
        self.gate.admit(client, deadline)
        async with self.gate.place(client, deadline):
            left_s = deadline - asyncio.get_running_loop().time()
            future = self.judge.forward(path, body, content_type, left_s)
            try:
                answer = await asyncio.wrap_future(future)
            except ServersUnavailable as failure:
                raise RequestRefused(504, "not_run", f"the program was not run: {failure}", 1.0) from None
            finally:
                future.cancel()
        return Response(answer.content, answer.status, media_type=answer.headers.get("content-type"))

    def deadline(self, asked_s: float | None) -> float:
        """Return the deadline of a request that arrives now, on the loop's clock. Raises RequestRefused."""
        if asked_s is None:
            asked_s = self.limits.default_deadline_s
        if not asked_s > 0:
            raise bad_request(f"the deadline is {asked_s} s: expected a positive number of seconds")
        return asyncio.get_running_loop().time() + min(asked_s, self.limits.longest_deadline_s)

    def check(self, problem: Problem) -> Problem:
        """Return ``problem`` if it is within the limits of the server. Raises RequestRefused."""
        if (count := case_count(problem)) > self.limits.most_cases:
            raise bad_request(
                f"problem {problem.id!r} has {count} cases; this server takes {self.limits.most_cases}"
            )
        most = self.limits.most_memory_mb
        if most is not None and problem.limits.memory_mb > most:
            raise bad_request(
                f"problem {problem.id!r} grants {problem.limits.memory_mb:g} MiB; here at most {most:g}"
            )
        return problem

    async def judged(
        self, client: str, deadline: float, problem: Problem, program: Program | None, options: dict[str, Any]
    ) -> Judgement:
        """Judge a program as soon as there is a place. Raises RequestRefused. Cancelling stops
        the program."""
        arrived = asyncio.get_running_loop().time()
        try:
            queued_s = queued_before(options)
        except UserError as error:
            raise bad_request(str(error)) from None
        async with self.gate.place(client, deadline):
            now = asyncio.get_running_loop().time()
            left = deadline - now
            if left <= 0:
                raise too_late(self.gate.expected_s(client))
            # Over a cluster a problem is sent to a node once. Its parts would be other problems each time.
            most = 1 if self._nodes is not None else most_parts(problem, program, options)
            idle = self.gate.take_more(most - 1, self.workers)
            try:
                parts = parts_of(problem, 1 + idle)
                timed = {**options, "deadline_s": left, "queued_s": queued_s + now - arrived}
                judgement = await self._judged(problem, parts, program, timed)
            finally:
                self.gate.give_back(idle)
        late = asyncio.get_running_loop().time() >= deadline
        if judgement.verdict is Verdict.JUDGE_ERROR and late:
            raise too_late(self.gate.expected_s(client))
        self.telemetry.judged(judgement)
        return judgement

    async def run(self, client: str, deadline: float, task: RunTask) -> RunReply:
        """Run a program as soon as there is a place. Raises RequestRefused. Cancelling stops the program."""
        assert isinstance(self.judge, Judge)  # a cluster forwards programs that are not judged
        async with self.gate.place(client, deadline):
            future = await self._submitted(partial(self.judge.run, task))
            try:
                async with asyncio.timeout_at(deadline):
                    return await asyncio.wrap_future(future)
            except TimeoutError:
                raise too_late(self.gate.expected_s(client)) from None
            finally:
                future.cancel()

    async def _judged(
        self, problem: Problem, parts: list[Problem], program: Program | None, options: dict[str, Any]
    ) -> Judgement:
        """Judge the ``parts`` of ``problem`` at the same time, and combine their judgements.

        Raises RequestRefused. Cancelling stops the program.
        """
        futures = list[Future[Judgement]]()
        found = list[Judgement]()
        stops = bool(options.get("stop_at_first_failure"))
        try:
            for part in parts:
                submit = partial(self.judge.submit, part, program, **options)
                futures.append(await self._submitted(submit))
            for part, future in zip(parts, futures, strict=True):
                found.append(await asyncio.wrap_future(future))
                if not goes_on(part, found[-1], stop_at_first_failure=stops):
                    break
        except asyncio.CancelledError:
            self.telemetry.cancelled.inc()
            raise
        except UserError as error:
            # Only a node of a cluster can detect this error.
            raise bad_request(str(error)) from None
        finally:
            for future in futures:
                # After a failure, the parts behind it are not needed. Finished futures ignore this.
                future.cancel()
        if len(parts) == 1:
            return found[0]
        self.telemetry.spread.inc()
        return joined(problem, parts, found, options)

    async def _submitted(self, submit: Callable[[], Future[T]]) -> Future[T]:
        """Queue a program and return its future. A thread packs its message, which may be large."""
        submitting = asyncio.ensure_future(asyncio.to_thread(submit))
        try:
            # A thread cannot be cancelled. If the client disconnects, `_withdraw` cancels what it queued.
            return await asyncio.shield(submitting)
        except asyncio.CancelledError:
            submitting.add_done_callback(_withdraw)
            raise
        except (UserError, TypeError, UnicodeEncodeError) as error:
            # UnicodeEncodeError comes from an option with a lone surrogate.
            raise bad_request(str(error)) from None
        except RuntimeError as error:
            raise RequestRefused(503, "draining", str(error), 1.0) from None


def _withdraw(submitting: asyncio.Future[Future[T]]) -> None:
    """Stop a program whose client disconnected before it was queued."""
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()

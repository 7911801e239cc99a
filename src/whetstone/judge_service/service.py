"""Programs to the judge, each in its turn: what endpoints of any shape have judged goes through here."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import msgspec

from whetstone import __version__
from whetstone.errors import UserError
from whetstone.judge import Judge, Judgement, Problem, Program, Verdict
from whetstone.judge.languages.table import LANGUAGES
from whetstone.judge.languages.toolchains import runs_here
from whetstone.judge.options import queued_before
from whetstone.judge_service.cluster.judge import ClusterJudge
from whetstone.judge_service.cluster.serving import ClusterRunners, watch_nodes
from whetstone.judge_service.datasets import Datasets
from whetstone.judge_service.gate import Gate
from whetstone.judge_service.known import KnownProblems
from whetstone.judge_service.messages import Info
from whetstone.judge_service.refusal import Refused, bad_request, too_late
from whetstone.judge_service.runner.pool import Runners
from whetstone.judge_service.settings import Limits
from whetstone.judge_service.spread import goes_on, joined, most_parts, parts_of
from whetstone.judge_service.telemetry import Telemetry
from whetstone.problem import case_count

PLACES_PER_WORKER = 2
"""One program that runs, and one that is next: no core waits for the event loop."""


class Service:
    """A judge, the gate before it, and what is known and counted. One event loop uses it."""

    def __init__(
        self,
        judge: Judge | ClusterJudge,
        workers: int,
        limits: Limits,
        telemetry: Telemetry,
        environment: str | None = None,
        datasets: Datasets | None = None,
    ) -> None:
        """``judge`` has ``workers`` and this ``environment``, and stays the caller's."""
        self.judge = judge
        self.cluster = judge if isinstance(judge, ClusterJudge) else None
        if isinstance(judge, ClusterJudge):
            self.runners, places, languages = ClusterRunners(judge), judge.window, judge.languages
        else:
            self.runners, places = Runners(workers, judge.isolation, environment), PLACES_PER_WORKER * workers
            languages = [name for name in LANGUAGES if runs_here(name, judge.isolation)]
        self.datasets = datasets or Datasets({})
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

    def watch(self) -> None:
        """On the event loop that uses this: follow the nodes of a cluster, where the judge has some."""
        if self.cluster is not None:
            watch_nodes(self.cluster, self.telemetry, self._resized)

    def _resized(self, workers: int, window: int, isolation: str) -> None:
        self.workers = workers
        self.gate.resize(window)
        self.info = msgspec.structs.replace(
            self.info, workers=max(workers, 1), window=window, isolation=isolation
        )

    def close(self) -> None:
        """End what runs for this service alone."""
        self.runners.close()

    def deadline(self, asked_s: float | None) -> float:
        """When a request that arrives now must be answered, on the loop's clock. Raises Refused."""
        if asked_s is None:
            asked_s = self.limits.default_deadline_s
        if not asked_s > 0:
            raise bad_request(f"the deadline is {asked_s} s: expected a positive number of seconds")
        return asyncio.get_running_loop().time() + min(asked_s, self.limits.longest_deadline_s)

    def check(self, problem: Problem) -> Problem:
        """``problem``, unless it asks for more than this server gives. Raises Refused."""
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
        """The judgement, once there is a place. Raises Refused; cancelled, it stops the program."""
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
            # Over nodes a problem travels once: its parts would be other problems each time.
            most = 1 if self.cluster is not None else most_parts(problem, program, options)
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

    async def _judged(
        self, problem: Problem, parts: list[Problem], program: Program | None, options: dict[str, Any]
    ) -> Judgement:
        """The judgement on ``problem``, whose ``parts`` are judged at the same time.

        Raises Refused; cancelled, it stops the program.
        """
        futures = list[Future[Judgement]]()
        found = list[Judgement]()
        stops = bool(options.get("stop_at_first_failure"))
        try:
            for part in parts:
                futures.append(await self._submitted(part, program, options))
            for part, future in zip(parts, futures, strict=True):
                found.append(await asyncio.wrap_future(future))
                if not goes_on(part, found[-1], stop_at_first_failure=stops):
                    break
        except asyncio.CancelledError:
            self.telemetry.cancelled.inc()
            raise
        except UserError as error:  # what only a node of a cluster could tell
            raise bad_request(str(error)) from None
        finally:
            for future in futures:
                future.cancel()  # those that are not needed any more
        if len(parts) == 1:
            return found[0]
        self.telemetry.spread.inc()
        return joined(problem, parts, found, options)

    async def _submitted(
        self, problem: Problem, program: Program | None, options: dict[str, Any]
    ) -> Future[Judgement]:
        """The future of a queued program. Packing its problem takes time in proportion to its size."""
        submitting = asyncio.ensure_future(asyncio.to_thread(self.judge.submit, problem, program, **options))
        try:
            return await asyncio.shield(submitting)
        except asyncio.CancelledError:
            submitting.add_done_callback(_withdraw)
            raise
        except (UserError, TypeError, UnicodeEncodeError) as error:
            raise bad_request(str(error)) from None  # the last: an option that is a lone surrogate
        except RuntimeError as error:
            raise Refused(503, "draining", str(error), 1.0) from None


def _withdraw(submitting: asyncio.Future[Future[Judgement]]) -> None:
    """Stop a program whose client was gone before it was queued."""
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()

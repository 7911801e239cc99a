"""Jobs to nodes and outcomes back, each job answered once. Everything here is on one event loop."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from concurrent.futures import Future, InvalidStateError
from typing import Any

from whetstone.errors import UserError
from whetstone.judge.workers.wire import unpack
from whetstone.judge_service.cluster.link import Job, NodeLink
from whetstone.judge_service.cluster.messages import Failed, HasRun, Judged, Unknown, Wrong
from whetstone.judge_service.cluster.routing import MOST_LOSSES, Routing

_MOST_RESENT = 3
_ANSWER_S = 15.0
"""How much later than the deadline a node's answer may come."""
_LATE = "its deadline passed"


class Router:
    """The jobs that are not answered yet, and the nodes that do them."""

    def __init__(self) -> None:
        self.routing = Routing()
        self.answered = Counter[str]()
        """Jobs by the node that did them, for as long as it is there."""
        self.rerun = 0
        """Programs that were begun anew because their node was lost."""
        self.given_up = 0
        """Programs that were not judged because too many nodes were lost with them."""
        self._jobs: dict[int, Job] = {}
        self._links: dict[str, NodeLink] = {}

    def joined(self, name: str, workers: int, link: NodeLink) -> None:
        """A node takes work."""
        self._links[name] = link
        self.routing.joined(name, workers)
        self._place()

    def left(self, name: str, reason: str) -> int:
        """A node is lost; its programs go elsewhere. How many it had."""
        del self._links[name]
        self.answered.pop(name, None)
        again, given_up = self.routing.left(name)
        self.rerun += again
        self.given_up += len(given_up)
        for number in given_up:
            job = self._jobs[number]
            self._settle(job, job.failed(f"{MOST_LOSSES} nodes were lost while they judged it: {reason}"))
        self._place()
        return again + len(given_up)

    def add(self, job: Job) -> None:
        """Have a job done by the node with the least to do."""
        if job.future.done():
            return
        self._jobs[job.number] = job
        loop = asyncio.get_running_loop()
        job.arrived = loop.time()
        if job.deadline < math.inf:
            job.timer = loop.call_at(job.deadline, self._expire, job)
        self.routing.add(job.number, job.priority, job.deadline)
        self._place()

    def drop(self, number: int) -> None:
        """Nobody wants this job any more."""
        job = self._jobs.pop(number, None)
        if job is None:
            return
        if job.timer is not None:
            job.timer.cancel()
        if (name := self.routing.drop(number)) is not None:
            self._links[name].stop(number)
            self._place()

    def fail_all(self, reason: str) -> None:
        """No node is there, and none comes."""
        for job in list(self._jobs.values()):
            self._fail(job, reason)

    def cancel_all(self) -> None:
        """The router ends."""
        for job in list(self._jobs.values()):
            job.future.cancel()

    def outcomes(self, name: str, found: list[tuple[int, bytes]]) -> None:
        """What a node answers."""
        for number, data in found:
            outcome = unpack(data, Judged, HasRun, Wrong, Unknown, Failed)
            job = self._jobs.get(number)
            if job is None:
                continue  # it was dropped meanwhile
            if isinstance(outcome, Unknown) and job.resent < _MOST_RESENT:
                job.resent += 1
                self._links[name].forget(job.problem_sha256)
                self._links[name].send(job)
            elif self.routing.done(number, name):
                self.answered[name] += 1
                self._settle(job, _result(job, outcome))
        self._place()

    def _place(self) -> None:
        for number, name in self.routing.place():
            self._links[name].send(self._jobs[number])

    def _expire(self, job: Job) -> None:
        """The deadline has passed: the node that has the job says what it knows, or there is none."""
        if self.routing.is_on_node(job.number):
            job.timer = asyncio.get_running_loop().call_later(_ANSWER_S, self._fail, job, _LATE)
        else:
            self._fail(job, _LATE)

    def _fail(self, job: Job, reason: str) -> None:
        self.drop(job.number)
        _set(job.future, job.failed(reason))

    def _settle(self, job: Job, result: Any) -> None:
        del self._jobs[job.number]
        if job.timer is not None:
            job.timer.cancel()
        _set(job.future, result)


def _result(job: Job, outcome: Judged | HasRun | Wrong | Unknown | Failed) -> Any:
    """What an outcome means to the caller: a result, or an exception."""
    match outcome:
        case Judged(judgement):
            return judgement
        case HasRun(ran):
            return ran
        case Wrong(message):
            return UserError(message)
        case Unknown():
            return job.failed("the node keeps no problem that is so large")
        case Failed(reason):
            return job.failed(reason)


def _set(future: Future[Any], result: Any) -> None:
    try:
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
    except InvalidStateError:
        return  # it was cancelled a moment ago

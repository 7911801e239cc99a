"""One node as the router sees it: jobs that leave together, outcomes that come together.

Of what is to be sent, all that has gathered goes in one call, and the next call leaves when that one was
answered: the busier the node, the more goes in each.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from whetstone.judge.workers.wire import pack, unpack
from whetstone.judge_service.cluster.fleet import Post
from whetstone.judge_service.cluster.messages import Batch, Given, Results

SILENCE_S = 60.0
"""A node that answers no call for so long is lost; an idle one answers every few seconds."""
_BATCH_BYTES = 8 << 20
KNOWN_BYTES = 256 << 20
"""Of problems that a node keeps to be named by their hash."""


@dataclass(eq=False)
class Job:
    """What is to be done, packed; the problem that it names; and what becomes of it."""

    number: int
    data: bytes
    priority: int
    deadline: float
    """On the loop's clock; infinity: none."""
    future: Future[Any]
    failed: Callable[[str], Any]
    """What its caller gets when it could not be done."""
    problem: bytes = b""
    problem_sha256: str = ""
    arrived: float = 0.0
    """On the loop's clock."""
    resent: int = 0
    timer: asyncio.TimerHandle | None = None


class NodeLink:
    """What goes to one node, and comes from it. Used on the router's event loop."""

    def __init__(self, post: Post, outcomes: Callable[[list[tuple[int, bytes]]], None]) -> None:
        """``outcomes`` is called with what comes."""
        self._post, self._outcomes = post, outcomes
        self._jobs: OrderedDict[int, Job] = OrderedDict()
        self._stop: list[int] = []
        self._something = asyncio.Event()
        self._known: OrderedDict[str, int] = OrderedDict()
        self._known_bytes = 0

    def send(self, job: Job) -> None:
        """Let a job leave with the next batch."""
        self._jobs[job.number] = job
        self._something.set()

    def stop(self, number: int) -> None:
        """A job is not wanted any more, whether it has left or not."""
        if self._jobs.pop(number, None) is None:
            self._stop.append(number)
            self._something.set()

    def forget(self, problem_sha256: str) -> None:
        """The node says that it does not have this problem."""
        self._known_bytes -= self._known.pop(problem_sha256, 0)

    async def run(self) -> None:
        """Send and receive until the node is lost. Raises NodeLost."""
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._send())
                both.create_task(self._receive())
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _send(self) -> None:
        while True:
            await self._something.wait()
            await self._post.call("put", pack(self._batch()), SILENCE_S)

    async def _receive(self) -> None:
        while True:
            data = await self._post.call("take", None, SILENCE_S)
            self._outcomes(unpack(data, Results).outcomes)

    def _batch(self) -> Batch:
        """What has gathered, or as much of it as goes in one call."""
        problems, given, size = list[bytes](), list[Given](), 0
        now = asyncio.get_running_loop().time()
        while self._jobs and size < _BATCH_BYTES:
            _, job = self._jobs.popitem(last=False)
            if job.problem_sha256 and not self._knows(job):
                problems.append(job.problem)
                size += len(job.problem)
            left_s = None if job.deadline == float("inf") else max(job.deadline - now, 0.001)
            given.append(Given(job.number, left_s, max(now - job.arrived, 0.0), job.data))
            size += len(job.data)
        stop, self._stop = self._stop, []
        if not self._jobs:
            self._something.clear()
        return Batch(problems, given, stop)

    def _knows(self, job: Job) -> bool:
        """Whether the node was sent the job's problem before; from now on it was."""
        if job.problem_sha256 in self._known:
            self._known.move_to_end(job.problem_sha256)
            return True
        self._known[job.problem_sha256] = len(job.problem)
        self._known_bytes += len(job.problem)
        while self._known_bytes > KNOWN_BYTES and len(self._known) > 1:
            self._known_bytes -= self._known.popitem(last=False)[1]
        return False

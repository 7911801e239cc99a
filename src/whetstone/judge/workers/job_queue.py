"""The queue of jobs for the workers: by priority, deadline and arrival. Cancelled jobs are dropped."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from whetstone.core.verdict import CaseJudgement, Judgement
from whetstone.judge.deadline import DeadlinePassed
from whetstone.judge.workers.wire import RunReply

_COMPACT_FROM = 64


@dataclass(eq=False)
class QueuedJob:
    """A packed task with its priority and times.

    ``run_timeout_s`` limits the silence of a worker between two runs of a case. ``deadline`` is on the
    monotonic clock. ``queued_s`` are the seconds that it waited elsewhere before. The result of ``future`` is
    a Judgement, or a RunReply if the task is a RunTask (``is_run``).

    The future stays pending until it has a result, so that it can be cancelled while a worker is busy with
    the job. A future that is done means that the work is no longer needed.
    """

    data: bytes
    run_timeout_s: float
    priority: int = 0
    deadline: float = math.inf
    queued_s: float = 0.0
    is_run: bool = False
    environment: str = ""
    """The environment that the problem names, as judgements name it; empty for that of the pool."""
    future: Future[Any] = field(default_factory=Future[Any])
    wake: Callable[[], None] | None = None
    """Makes the slot that works on the job check whether it is still wanted."""
    submitted: float = field(default_factory=time.monotonic)
    began: float | None = None
    """When a worker first got it."""
    overdue: DeadlinePassed | None = None
    """Set when the deadline passed while a worker had the job."""
    refused: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])
    """Cases that failed, by number. They stay so if the worker dies."""

    def settle(self, answer: Judgement | RunReply) -> None:
        """Give the caller the answer, unless the job was cancelled or has passed its deadline."""
        try:
            self.future.set_result(answer)
        except InvalidStateError:
            return  # another thread settled or cancelled it at the same time

    def passes_deadline(self, now: float) -> bool:
        """Record that the deadline has passed. Returns False if no worker has the job, or if already done."""
        if self.began is None or self.overdue is not None:
            return False
        self.overdue = DeadlinePassed(self.queued_s + self.began - self.submitted, now - self.began)
        if self.wake is not None:
            self.wake()
        return True

    def on_done(self, _: Future[Any]) -> None:
        """The future's callback: free the task, and stop the work on it."""
        self.data = b""
        if self.future.cancelled():
            # Without this, ``concurrent.futures.wait`` and ``as_completed`` never see the cancellation.
            self.future.set_running_or_notify_cancel()
        if self.wake is not None:
            self.wake()


class _Heap:
    """Jobs by key, smallest first. Done jobs are removed when the heap has doubled, at constant cost."""

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[float, ...], QueuedJob]] = []
        self._compact_at = _COMPACT_FROM

    def push(self, key: tuple[float, ...], job: QueuedJob) -> None:
        """Add a job under a key that no other job has."""
        if len(self._entries) >= self._compact_at:
            self._entries = [entry for entry in self._entries if not entry[1].future.done()]
            heapq.heapify(self._entries)
            self._compact_at = 2 * len(self._entries) + _COMPACT_FROM
        heapq.heappush(self._entries, (key, job))

    def _first(self) -> QueuedJob | None:
        """Return the first job that is not done, without removing it."""
        while self._entries and self._entries[0][1].future.done():
            heapq.heappop(self._entries)
        return self._entries[0][1] if self._entries else None

    def first_key(self) -> float:
        """Return the first number of the key of the first job that is not done; infinity if there is none."""
        return math.inf if self._first() is None else self._entries[0][0][0]

    def pop(self) -> QueuedJob | None:
        """Remove and return the first job that is not done."""
        return self.pop_until(math.inf)

    def pop_until(self, limit: float) -> QueuedJob | None:
        """Remove and return the first job that is not done if the first number of its key is at most
        ``limit``."""
        if self._first() is None or self._entries[0][0][0] > limit:
            return None
        return heapq.heappop(self._entries)[1]


class JobQueue:
    """The queue of a pool, and the clock that watches deadlines. Thread-safe.

    ``on_deadline`` is called on the clock's thread for each job whose deadline passed before it was done,
    waiting or running. It returns the seconds after which to call it again if the job is not done by then, or
    None.
    """

    def __init__(self, on_deadline: Callable[[QueuedJob], float | None]) -> None:
        self._on_deadline = on_deadline
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._timed = threading.Condition(self._lock)
        self._waiting = _Heap()
        self._deadlines = _Heap()
        self._number = 0
        self._closed = False
        self._clock: threading.Thread | None = None

    def put(self, job: QueuedJob) -> None:
        """Add a job. Raises RuntimeError once closed."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this judge is closed")
            self._number += 1
            self._waiting.push((-job.priority, job.deadline, self._number), job)
            self._arrived.notify()
            if job.deadline < math.inf:
                self._deadlines.push((job.deadline, self._number), job)
                self._timed.notify()
                if self._clock is None:
                    self._clock = threading.Thread(target=self._watch, name="judge-deadlines", daemon=True)
                    self._clock.start()

    def take(self, wake: Callable[[], None]) -> QueuedJob | None:
        """Wait for the next job; ``wake`` is called when it is no longer needed. Returns None once closed."""
        with self._lock:
            while not self._closed:
                job = self._waiting.pop()
                if job is None:
                    self._arrived.wait()
                    continue
                job.wake = wake
                # Check again: the job may have been cancelled before `wake` was set.
                if not job.future.done():
                    return job
        return None

    def close(self) -> None:
        """Close the queue: ``put`` raises RuntimeError, and ``take`` returns None."""
        with self._lock:
            self._closed = True
            self._arrived.notify_all()
            self._timed.notify_all()
        if self._clock not in (None, threading.current_thread()):
            self._clock.join()

    def _watch(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                now = time.monotonic()
                job = self._deadlines.pop_until(now)
                if job is None:
                    self._timed.wait(min(self._deadlines.first_key() - now, threading.TIMEOUT_MAX))
                    continue
            again_s = self._on_deadline(job)
            if again_s is not None:
                with self._lock:
                    self._number += 1
                    self._deadlines.push((time.monotonic() + again_s, self._number), job)

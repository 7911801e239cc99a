"""Judge workers as processes. Each slot has one thread and one worker process; one queue feeds all slots.

The thread that starts a worker lives as long as the worker, because the kernel ends a worker together with
the thread that started it.

If a worker dies, a new one judges the program again, except for the cases that were already refused. If
several workers die in succession, this is evidence against the program: see ``failure_cause``.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from whetstone.core.errors import SandboxUnavailable, UserError
from whetstone.core.verdict import Judgement, Verdict
from whetstone.judge.environments.environment import PackageEnvironment, default_environment
from whetstone.judge.failure_cause import DeathCount, NotJudged, harmless_program
from whetstone.judge.values import WireError
from whetstone.judge.workers.job_queue import JobQueue, QueuedJob
from whetstone.judge.workers.process import (
    CLOSE_TIMEOUT_S,
    START_TIMEOUT_S,
    STOP,
    STOP_TIMEOUT_S,
    WorkerProcess,
)
from whetstone.judge.workers.wire import JudgeTask, LinkClosed, RunReply, Setup, pack, unpack
from whetstone.sandbox import Tier

_LOG = logging.getLogger(__name__)
_SLOT_SLACK_S = 2.0
# The exceptions when a worker dies, or when a new one does not start.
_FAULTS = (LinkClosed, WireError, SandboxUnavailable, OSError)


class Pool:
    """Runs tasks on ``size`` workers. Thread-safe."""

    def __init__(
        self,
        size: int,
        minimum_tier: Tier,
        tier: Tier | None = None,
        environment: PackageEnvironment | None = None,
        comparisons: tuple[str, ...] = (),
    ) -> None:
        """Start the workers at ``tier`` (None: the strongest available one) and wait for the first.

        ``environment`` has the packages that Python code may import (None: the default one). The workers
        import the modules ``comparisons``. Raises SandboxUnavailable, UserError.
        """
        self.size = size
        self.isolation = ""
        self.environment = environment or default_environment()
        self.setup = Setup(minimum_tier, tier, self.environment, comparisons)
        self.admission = JobQueue(self._expire)
        self._closed = False
        self._lock = threading.Lock()
        self._pending: set[QueuedJob] = set()
        self._slots = [_WorkerSlot(self, number) for number in range(size)]
        self._slots[0].wait_until_ready(self)

    def submit(self, job: QueuedJob) -> Future[Any]:
        """Queue a job. ``close`` cancels it if it is not done. Raises RuntimeError on a closed pool."""
        with self._lock:
            self._pending.add(job)
        job.future.add_done_callback(job.on_done)
        job.future.add_done_callback(lambda _: self._forget(job))
        try:
            self.admission.put(job)
        except RuntimeError:
            job.future.cancel()
            raise
        return job.future

    def _forget(self, job: QueuedJob) -> None:
        with self._lock:
            self._pending.discard(job)

    def _expire(self, job: QueuedJob) -> float | None:
        """Handle a passed deadline. Returns the seconds after which to check again, or None if settled.

        A worker that runs the job is asked for what it knows so far. If no worker runs it, or the worker
        does not answer in time, the job is settled here.
        """
        if job.passes_deadline(time.monotonic()):
            # A worker answers an interruption within STOP_TIMEOUT_S. The slack is for the thread of its slot.
            return STOP_TIMEOUT_S + _SLOT_SLACK_S
        job.settle(self.overdue(job))
        return None

    def overdue(self, job: QueuedJob) -> Judgement:
        """Return the judgement on a program whose deadline passed, if no worker reports more."""
        reason, data, refused = "not judged: its deadline passed", job.data, list(job.refused.values())
        if not refused or not data:
            return self.unjudged(job, reason)
        from whetstone.judge.judging import conclude_unfinished

        task = unpack(data, JudgeTask)
        judgement = conclude_unfinished(task.problem, task.options, refused, self.isolation, reason)
        return msgspec.structs.replace(judgement, environment=job.environment or self.environment.label)

    def unjudged(self, job: QueuedJob, reason: str, verdict: Verdict = Verdict.JUDGE_ERROR) -> Judgement:
        """Return the judgement on a program when no case was judged."""
        score = None if verdict is Verdict.JUDGE_ERROR else 0.0
        label = job.environment or self.environment.label
        return Judgement(verdict, [], score, self.isolation, reason[:500], environment=label)

    def unanswered(
        self, job: QueuedJob, reason: str, verdict: Verdict = Verdict.JUDGE_ERROR
    ) -> Judgement | RunReply:
        """Return the answer to a job that no worker could answer."""
        return RunReply(fault=reason[:500]) if job.is_run else self.unjudged(job, reason, verdict)

    @property
    def closed(self) -> bool:
        """Whether the pool is closed, so that the workers must exit."""
        return self._closed

    def worker_pids(self) -> list[int]:
        """Return the ids of the worker processes that serve now."""
        workers = [slot.worker for slot in self._slots if slot.alive]
        return [worker.pid for worker in workers if worker is not None]

    def close(self) -> None:
        """End the workers and cancel all jobs that are not done."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.admission.close()
        for slot in self._slots:
            slot.close()
        with self._lock:
            remaining = list(self._pending)
        for job in remaining:
            job.future.cancel()

    def disown(self) -> None:
        """In a forked process, close the copies of descriptors without ending the parent's workers.

        The fork has none of the pool's threads, and they may hold its locks. So this pool must not be used
        again in the fork.
        """
        self._closed = True
        self._pending, self._lock = set(), threading.Lock()
        for slot in self._slots:
            slot.disown()


class _WorkerSlot:
    """One thread and the worker process that it manages."""

    def __init__(self, pool: Pool, number: int) -> None:
        self._pool = pool
        self.worker: WorkerProcess | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._awake = threading.Lock()  # so that no thread writes to the descriptor after it is closed
        self._started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, name=f"judge-{number}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread that feeds the worker runs. Without it, the worker gets no jobs."""
        return self._thread.is_alive()

    def wait_until_ready(self, pool: Pool) -> None:
        """Wait until the worker serves, and set the pool's tier. Closes the pool if it cannot serve."""
        try:
            pool.isolation = self._started.result(START_TIMEOUT_S + CLOSE_TIMEOUT_S)
        except (TimeoutError, LinkClosed) as error:
            pool.close()
            raise UserError(
                f"the judge's first worker did not start ({str(error) or 'no answer'}); if this machine "
                "is overloaded, free a core or configure fewer workers"
            ) from None
        except BaseException:
            pool.close()
            raise

    def close(self) -> None:
        """End the worker and the thread. If the thread itself calls this, it ends after the call."""
        worker = self.worker
        if worker is not None:
            worker.hang_up()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT_S)

    def disown(self) -> None:
        """See ``Pool.disown``."""
        if self.worker is not None:
            self.worker.disown()
        if self._wake_fd >= 0:
            os.close(self._wake_fd)
        self._wake_fd, self._awake = -1, threading.Lock()

    def _run(self) -> None:
        try:
            self._started.set_result(self._ready_worker().isolation)
        except Exception as error:
            self._started.set_exception(error)
        while (job := self._pool.admission.take(self._wake)) is not None:
            try:
                answer = self._judge(job)
            except NotJudged as failure:
                answer = self._pool.unanswered(job, str(failure), failure.verdict)
            # If the thread died instead, its caller would wait forever, and the pool would silently lose a
            # worker.
            except Exception as error:
                _LOG.exception("the judge failed on one program")
                self._drop_worker()
                answer = self._pool.unanswered(job, f"the judge failed: {type(error).__name__}: {error}")
            job.wake = None
            if answer is not None and not self._is_unwanted(job):
                job.settle(answer)
        self._drop_worker()
        with self._awake:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _wake(self) -> None:
        with self._awake:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def _judge(self, job: QueuedJob) -> Judgement | RunReply | None:
        """Let the worker judge or run the program. Returns None if the answer is no longer wanted.

        Raises NotJudged.
        """
        data, refused = job.data, job.refused
        deaths = DeathCount("the judge's worker", _FAULTS)
        while not self._is_unwanted(job):
            if job.overdue is not None:
                return self._pool.overdue(job)
            tried, harmless = time.monotonic(), _no_evidence
            try:
                worker = self._ready_worker()
                harmless = partial(self._judge_harmless_program, job, data, tried)
                job.began = job.began or time.monotonic()
                remaining = data
                if refused:  # another worker does not judge these cases again
                    task = unpack(data, JudgeTask)
                    remaining = pack(msgspec.structs.replace(task, refused=list(refused.values())))
                interruption = partial(self._interruption, job)
                return worker.judge(remaining, job.run_timeout_s, self._wake_fd, interruption, refused)
            except _FAULTS as fault:
                self._drop_worker()
                deaths.record(fault, harmless)
        return None

    def _judge_harmless_program(self, job: QueuedJob, data: bytes, tried: float) -> bool:
        """Return whether a worker judges a harmless program now, so that the machine is not the cause.

        It runs for as long as the program that was tried at the time ``tried``. A program that is only run
        gets no verdict, so its cause does not matter. Raises ``_FAULTS``.
        """
        if job.is_run or job.overdue is not None or self._is_unwanted(job):
            return False
        program = harmless_program(time.monotonic() - tried)
        probe = pack(msgspec.structs.replace(unpack(data, JudgeTask), program=program))
        interruption = partial(self._interruption, job)
        try:
            worker = self._ready_worker()
            return worker.judge(probe, job.run_timeout_s, self._wake_fd, interruption, {}) is not None
        except _FAULTS:
            self._drop_worker()
            raise

    def _is_unwanted(self, job: QueuedJob) -> bool:
        """Return whether no caller waits for this judgement. The end of a worker is then no failure."""
        return self._pool.closed or job.future.done()

    def _interruption(self, job: QueuedJob) -> bytes | None:
        """Return the message that must interrupt the worker, or None."""
        if self._is_unwanted(job):
            return STOP
        return None if job.overdue is None else pack(job.overdue)

    def _ready_worker(self) -> WorkerProcess:
        if self.worker is None:
            self.worker = WorkerProcess(self._pool.setup)
        return self.worker

    def _drop_worker(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def _no_evidence() -> bool:
    """Return that no harmless program ran, because no worker could be started."""
    return False

"""Judge workers as processes: one thread and one worker process for each place, fed by one admission queue.

The thread that starts a worker lives as long as it does, because the kernel ends a worker together with
the thread that started it.

A worker that dies costs no judgement: its program is judged again by a fresh one, but for the cases that were
refused. Workers that die one after the other are evidence against the program: see ``blame``.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from concurrent.futures import Future

import msgspec

from whetstone.errors import SandboxUnavailable, UserError
from whetstone.judge.blame import NotJudged, despite_faults, harmless_program
from whetstone.judge.environments.environment import Environment, default_environment
from whetstone.judge.values import WireError
from whetstone.judge.workers.admission import Admission, Order
from whetstone.judge.workers.process import (
    CLOSE_TIMEOUT_S,
    START_TIMEOUT_S,
    STOP,
    STOP_TIMEOUT_S,
    WorkerProcess,
)
from whetstone.judge.workers.wire import LinkClosed, Setup, Task, pack, unpack
from whetstone.sandbox import Tier
from whetstone.verdict import CaseJudgement, Judgement, Verdict

_LOG = logging.getLogger(__name__)
_PLACE_SLACK_S = 2.0
# What a worker's death looks like, and a fresh one that does not start.
_FAULTS = (LinkClosed, WireError, SandboxUnavailable, OSError)


class Pool:
    """Runs tasks on ``size`` workers. Thread-safe."""

    def __init__(
        self,
        size: int,
        minimum_tier: Tier,
        tier: Tier | None = None,
        environment: Environment | None = None,
        comparisons: tuple[str, ...] = (),
    ) -> None:
        """Start the workers and wait for the first: at exactly ``tier``, or the strongest that works.

        ``environment`` has the packages that Python code may import (None: the default one); the workers
        import the modules ``comparisons``.

        Raises SandboxUnavailable.
        """
        self.size = size
        self.isolation = ""
        self.environment = environment or default_environment()
        self.setup = Setup(minimum_tier, tier, self.environment, comparisons)
        self.admission = Admission(self._expire)
        self._closed = False
        self._lock = threading.Lock()
        self._pending: set[Order] = set()
        self._places = [_Place(self, number) for number in range(size)]
        self._places[0].first_answer(self)

    def submit(self, order: Order) -> Future[Judgement]:
        """Queue an order. Raises RuntimeError on a closed pool. Closing cancels what was not done."""
        with self._lock:
            self._pending.add(order)
        order.future.add_done_callback(order.on_done)
        order.future.add_done_callback(lambda _: self._forget(order))
        try:
            self.admission.put(order)
        except RuntimeError:
            order.future.cancel()
            raise
        return order.future

    def _forget(self, order: Order) -> None:
        with self._lock:
            self._pending.discard(order)

    def _expire(self, order: Order) -> float | None:
        """Have the worker that has it say what it knows; where none has, or it does not answer, settle it."""
        if order.passes_deadline(time.monotonic()):
            return STOP_TIMEOUT_S + _PLACE_SLACK_S
        order.settle(self.overdue(order))
        return None

    def overdue(self, order: Order) -> Judgement:
        """The judgement on a program whose deadline passed, where no worker says more of it."""
        why, data, refused = "not judged: its deadline passed", order.data, list(order.refused.values())
        if not refused or not data:
            return self.unjudged(why)
        from whetstone.judge.judging import conclude_unfinished

        task = unpack(data, Task)
        judgement = conclude_unfinished(task.problem, task.options, refused, self.isolation, why)
        return msgspec.structs.replace(judgement, environment=self.environment.label)

    def unjudged(self, reason: str, verdict: Verdict = Verdict.JUDGE_ERROR) -> Judgement:
        """The judgement on a program of which no case was judged."""
        score = None if verdict is Verdict.JUDGE_ERROR else 0.0
        return Judgement(verdict, [], score, self.isolation, reason[:500], environment=self.environment.label)

    @property
    def closed(self) -> bool:
        """Whether the workers are to leave."""
        return self._closed

    def worker_pids(self) -> list[int]:
        """The ids of the worker processes that serve now."""
        workers = [place.worker for place in self._places if place.alive]
        return [worker.pid for worker in workers if worker is not None]

    def close(self) -> None:
        """End the workers, which are ours alone; tasks not done are cancelled."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.admission.close()
        for place in self._places:
            place.close()
        with self._lock:
            left = list(self._pending)
        for order in left:
            order.future.cancel()

    def disown(self) -> None:
        """In a forked process, which has none of the threads: let go of what belongs to the other one.

        Locks may be held by threads that are not here, so nothing of this pool is to be used again.
        """
        self._closed = True
        self._pending, self._lock = set(), threading.Lock()
        for place in self._places:
            place.disown()


class _Place:
    """One thread and the worker process it looks after."""

    def __init__(self, pool: Pool, number: int) -> None:
        self._pool = pool
        self.worker: WorkerProcess | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._awake = threading.Lock()  # between waking this place and closing its descriptor
        self._started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, name=f"judge-{number}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread that feeds the worker runs; without it the worker is never asked."""
        return self._thread.is_alive()

    def first_answer(self, pool: Pool) -> None:
        """Wait until the worker serves, and note its tier. Closes the pool if it cannot."""
        try:
            pool.isolation = self._started.result(START_TIMEOUT_S + CLOSE_TIMEOUT_S)
        except (TimeoutError, LinkClosed) as error:
            pool.close()
            raise UserError(
                f"the judge's first worker did not start ({str(error) or 'no answer'}); if this machine "
                "is overloaded, free a core or ask for fewer workers"
            ) from None
        except BaseException:
            pool.close()
            raise

    def close(self) -> None:
        """End the worker and the thread; the calling thread ends by itself when the caller is done."""
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
        while (order := self._pool.admission.take(self._wake)) is not None:
            judgement = self._settled(order)
            order.wake = None
            if judgement is not None:
                order.settle(judgement)
        self._drop_worker()
        with self._awake:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _settled(self, order: Order) -> Judgement | None:
        """As ``_judge``; whatever goes wrong here costs one judgement and never the thread.

        A thread that died would leave its caller waiting, and the pool one worker smaller, without a word.
        """
        try:
            return self._judge(order)
        except Exception as error:
            _LOG.exception("the judge failed over one program")
            self._drop_worker()
            return self._pool.unjudged(f"the judge failed: {type(error).__name__}: {error}")

    def _wake(self) -> None:
        with self._awake:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def _judge(self, order: Order) -> Judgement | None:
        """Have the worker judge; None when nobody wants the judgement any more."""
        data, refused = order.data, order.refused
        began = False

        def attempt() -> Judgement | None:
            nonlocal began
            began = False
            if self._unwanted(order):
                return None
            if order.overdue is not None:
                return self._pool.overdue(order)
            worker = self._ready_worker()
            began = True
            order.began = order.began or time.monotonic()
            return self._ask(worker, order, _with(data, refused) if refused else data, refused)

        def harmless(lived_s: float) -> bool:
            if not began or order.overdue is not None or self._unwanted(order):
                return False
            probe = msgspec.structs.replace(unpack(data, Task), program=harmless_program(lived_s))
            return self._ask(self._ready_worker(), order, pack(probe), {}) is not None

        try:
            return despite_faults("the judge's worker", attempt, harmless, _FAULTS)
        except NotJudged as failure:
            if self._unwanted(order):
                return None
            return self._pool.unjudged(str(failure), failure.verdict)

    def _ask(
        self, worker: WorkerProcess, order: Order, data: bytes, refused: dict[int, CaseJudgement]
    ) -> Judgement | None:
        """One task for the worker, which is dropped when it dies of it."""
        try:
            return worker.judge(
                data, order.run_timeout_s, self._wake_fd, lambda: self._interruption(order), refused
            )
        except (LinkClosed, WireError, OSError):
            self._drop_worker()
            raise

    def _unwanted(self, order: Order) -> bool:
        """Whether nobody waits for this judgement any more: a worker's end is then no failure."""
        return self._pool.closed or order.future.done()

    def _interruption(self, order: Order) -> bytes | None:
        """What the worker is to be told before it has judged, if anything."""
        if self._unwanted(order):
            return STOP
        return None if order.overdue is None else pack(order.overdue)

    def _ready_worker(self) -> WorkerProcess:
        if self.worker is None:
            self.worker = WorkerProcess(self._pool.setup)
        return self.worker

    def _drop_worker(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def _with(data: bytes, refused: dict[int, CaseJudgement]) -> bytes:
    """The packed task for another worker: what was refused is not judged again."""
    return pack(msgspec.structs.replace(unpack(data, Task), refused=list(refused.values())))

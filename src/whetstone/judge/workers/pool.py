"""Judge workers as processes: one thread and one worker process for each place, fed by one admission queue.

The thread that starts a worker lives as long as it does, because the kernel ends a worker together with
the thread that started it.

A worker that dies costs no judgement: its program is judged again by a fresh one. Three fresh workers that
die of the same program, while a program that does nothing is judged on the same problem after each of these
deaths, are evidence against the program (RUNTIME_ERROR); without it, it is JUDGE_ERROR. See ``blame``.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future

import msgspec

from whetstone.errors import SandboxUnavailable
from whetstone.judge.blame import DEATHS, FAULTS, harmless_program
from whetstone.judge.values import WireError
from whetstone.judge.workers.admission import Admission, Order
from whetstone.judge.workers.process import CLOSE_TIMEOUT_S, START_TIMEOUT_S, WorkerProcess
from whetstone.judge.workers.wire import LinkClosed, Task, pack, unpack
from whetstone.sandbox import Tier
from whetstone.verdict import Judgement, Verdict


class Pool:
    """Runs tasks on ``size`` workers. Thread-safe."""

    def __init__(self, size: int, minimum_tier: Tier, tier: Tier | None = None) -> None:
        """Start the workers and wait for the first: at exactly ``tier``, or the strongest that works.

        Raises SandboxUnavailable.
        """
        self.size = size
        self.isolation = ""
        self.tiers = (minimum_tier, tier)
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

    def _expire(self, order: Order) -> None:
        order.settle(
            Judgement(Verdict.JUDGE_ERROR, [], None, self.isolation, "not judged: its deadline passed")
        )

    @property
    def closed(self) -> bool:
        """Whether the workers are to leave."""
        return self._closed

    def worker_pids(self) -> list[int]:
        """The ids of the worker processes that live now."""
        workers = [place.worker for place in self._places]
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

    def first_answer(self, pool: Pool) -> None:
        """Wait until the worker serves, and note its tier. Closes the pool if it cannot."""
        try:
            pool.isolation = self._started.result(START_TIMEOUT_S + CLOSE_TIMEOUT_S)
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

    def _run(self) -> None:
        try:
            self._started.set_result(self._ready_worker().isolation)
        except Exception as error:
            self._started.set_exception(error)
        while (order := self._pool.admission.take(self._wake)) is not None:
            judgement = self._judge(order)
            order.wake = None
            if judgement is not None:
                order.settle(judgement)
        self._drop_worker()
        with self._awake:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _wake(self) -> None:
        with self._awake:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def _judge(self, order: Order) -> Judgement | None:
        """Have the worker judge; None when nobody wants the judgement any more."""
        data = order.data
        reason, deaths = "", 0
        for _ in range(FAULTS):
            if self._unwanted(order):
                return None
            try:
                worker = self._ready_worker()
            except (LinkClosed, WireError, SandboxUnavailable, OSError) as error:
                reason = str(error)
                continue
            began = time.monotonic()
            try:
                return worker.judge(data, order.run_timeout_s, self._wake_fd, lambda: self._unwanted(order))
            except (LinkClosed, WireError, OSError) as error:
                reason = str(error)
                self._drop_worker()
            deaths += self._harmless_one_lives(order, data, time.monotonic() - began)
            if deaths == DEATHS:
                reason = f"brought the judge's worker down {DEATHS} times: {reason}"
                return Judgement(Verdict.RUNTIME_ERROR, [], 0.0, self._pool.isolation, reason[:500])
        if self._unwanted(order):
            return None
        reason = f"the judge's worker failed: {reason}"
        return Judgement(Verdict.JUDGE_ERROR, [], None, self._pool.isolation, reason[:500])

    def _unwanted(self, order: Order) -> bool:
        """Whether nobody waits for this judgement any more: a worker's end is then no failure."""
        return self._pool.closed or order.future.done()

    def _harmless_one_lives(self, order: Order, data: bytes, lived_s: float) -> bool:
        """Whether a program that does nothing can be judged on the same problem, on a fresh worker."""
        if self._unwanted(order):
            return False
        try:
            task = unpack(data, Task)
            probe = msgspec.structs.replace(task, program=harmless_program(lived_s))
            return (
                self._ready_worker().judge(
                    pack(probe), order.run_timeout_s, self._wake_fd, lambda: self._unwanted(order)
                )
                is not None
            )
        except (LinkClosed, WireError, SandboxUnavailable, OSError):
            self._drop_worker()
            return False

    def _ready_worker(self) -> WorkerProcess:
        if self.worker is None:
            self.worker = WorkerProcess(*self._pool.tiers)
        return self.worker

    def _drop_worker(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None

"""Judge workers as processes: a queue of tasks, one thread and one worker process for each place.

Each worker is a fresh interpreter, never a fork. The thread that starts it also lives as long as it
does, because the kernel ends a worker together with the thread that started it.
"""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path

from whetstone.errors import SandboxUnavailable
from whetstone.judge.values import WireError
from whetstone.judge.wire import Done, LinkClosed, Progress, Ready, Refused, receive, send, unpack
from whetstone.sandbox import Tier
from whetstone.verdict import Judgement, Verdict

_START_TIMEOUT_S = 120.0
_CLOSE_TIMEOUT_S = 10.0
_ATTEMPTS = 3
_SOURCE_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class _Order:
    """A packed task, and how long one run of a case of it may take."""

    data: bytes
    deadline_s: float
    future: Future[Judgement] = field(default_factory=Future[Judgement])


class Pool:
    """Runs tasks on ``size`` workers. Thread-safe."""

    def __init__(self, size: int, minimum_tier: Tier, tier: Tier | None = None) -> None:
        """Start the workers and wait for the first: at exactly ``tier``, or the strongest that works.

        Raises SandboxUnavailable.
        """
        self.size = size
        self.isolation = ""
        self.tiers = (minimum_tier, tier)
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._pending: set[Future[Judgement]] = set()
        self._places = [_Place(self, number) for number in range(size)]
        self._places[0].first_answer(self)

    def submit(self, data: bytes, deadline_s: float) -> Future[Judgement]:
        """Queue a packed task. Its judgement is JUDGE_ERROR if worker after worker dies of it.

        Raises RuntimeError on a closed pool. Closing cancels what was not done.
        """
        order = _Order(data, deadline_s)
        with self._lock:
            if self._closed:
                raise RuntimeError("this judge is closed")
            self._pending.add(order.future)
        order.future.add_done_callback(self._forget)
        self._orders.put(order)
        return order.future

    def _forget(self, future: Future[Judgement]) -> None:
        with self._lock:
            self._pending.discard(future)

    def next_order(self) -> _Order | None:
        """The next task that nobody has given up on; None when the pool closes."""
        while (order := self._orders.get()) is not None:
            if order.future.set_running_or_notify_cancel():
                return order
        return None

    @property
    def closed(self) -> bool:
        """Whether the workers are to leave."""
        return self._closed

    def close(self) -> None:
        """End the workers, which are ours alone; tasks not done are cancelled."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for _ in self._places:
            self._orders.put(None)
        for place in self._places:
            place.close()
        with self._lock:
            left = list(self._pending)
        for future in left:
            if not future.cancel() and not future.done():
                future.set_exception(CancelledError("the judge was closed"))


class _Place:
    """One thread and the worker process it looks after."""

    def __init__(self, pool: Pool, number: int) -> None:
        self._pool = pool
        self._worker: _Worker | None = None
        self._started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, name=f"judge-{number}", daemon=True)
        self._thread.start()

    def first_answer(self, pool: Pool) -> None:
        """Wait until the worker serves, and note its tier. Closes the pool if it cannot."""
        try:
            pool.isolation = self._started.result(_START_TIMEOUT_S + _CLOSE_TIMEOUT_S)
        except BaseException:
            pool.close()
            raise

    def close(self) -> None:
        """End the worker and the thread."""
        worker = self._worker
        if worker is not None:
            worker.hang_up()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._worker = _Worker(*self._pool.tiers)
            self._started.set_result(self._worker.isolation)
        except Exception as error:
            self._started.set_exception(error)
        while not self._pool.closed and (order := self._pool.next_order()) is not None:
            judgement = self._judge(order)
            if judgement is not None and not order.future.done():
                order.future.set_result(judgement)
        if self._worker is not None:
            self._worker.close()

    def _judge(self, order: _Order) -> Judgement | None:
        """Have the worker judge; a fresh worker takes the place of one that dies of it.

        None when the pool was closed meanwhile: the worker's end is then no failure, but our doing.
        """
        reason = ""
        for _ in range(_ATTEMPTS):
            if self._pool.closed:
                return None
            try:
                if self._worker is None:
                    self._worker = _Worker(*self._pool.tiers)
                return self._worker.judge(order)
            except (LinkClosed, WireError, SandboxUnavailable, OSError) as error:
                reason = str(error)
                if self._worker is not None:
                    self._worker.close()
                    self._worker = None
        if self._pool.closed:
            return None
        return Judgement(
            Verdict.JUDGE_ERROR, [], None, self._pool.isolation, f"the judge's worker failed: {reason}"[:500]
        )


class _Worker:
    """A worker process and the channel to it."""

    def __init__(self, minimum_tier: Tier, tier: Tier | None) -> None:
        """Start it and wait until it serves. Raises SandboxUnavailable, LinkClosed."""
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "whetstone.judge.worker", str(theirs.fileno())),
                    *(minimum_tier.label, *([tier.label] if tier is not None else [])),
                ],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _python_path()},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C is for the caller, who then closes the pool
            )
        try:
            answer = unpack(receive(self._channel, _START_TIMEOUT_S), Ready, Refused)
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Refused):
            self.close()
            raise SandboxUnavailable(answer.reason)
        self.isolation = answer.isolation

    def judge(self, order: _Order) -> Judgement:
        """Send a task and wait for its judgement, with a deadline for each run of a case."""
        send(self._channel, order.data)
        while True:
            answer = unpack(receive(self._channel, order.deadline_s), Progress, Done)
            if isinstance(answer, Done):
                return answer.judgement

    def hang_up(self) -> None:
        """Make the worker leave, and whoever waits for its answer stop waiting."""
        try:
            self._channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it left already

    def close(self) -> None:
        """End the process; it is ours alone."""
        self.hang_up()
        self._channel.close()
        try:
            self._process.wait(_CLOSE_TIMEOUT_S / 2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _python_path() -> str:
    """Where the worker finds this very package, installed or not."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(_SOURCE_ROOT), *([inherited] if inherited else [])])

"""What waits for a worker: ordered by priority, deadline and arrival; what is unwanted leaves."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from whetstone.judge.late import DeadlinePassed
from whetstone.verdict import CaseJudgement, Judgement

_COMPACT_FROM = 64


@dataclass(eq=False)
class Order:
    """A packed task and what its caller asked for.

    ``run_timeout_s`` bounds the silence between two runs of a case; ``deadline`` is on the monotonic clock;
    ``queued_s`` is what it waited elsewhere.
    The future stays pending until the judgement is there, so that cancelling works while a worker is busy
    with it: whatever makes the future done says that nobody wants the work any more.
    """

    data: bytes
    run_timeout_s: float
    priority: int = 0
    deadline: float = math.inf
    queued_s: float = 0.0
    future: Future[Judgement] = field(default_factory=Future[Judgement])
    wake: Callable[[], None] | None = None
    """Tells the place that works on it to look whether it is still wanted."""
    submitted: float = field(default_factory=time.monotonic)
    began: float | None = None
    """When a worker first got it."""
    overdue: DeadlinePassed | None = None
    """Set when its deadline passed while a worker had it."""
    refused: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])
    """Cases that failed, by number. They stay so if the worker dies."""

    def settle(self, judgement: Judgement) -> None:
        """Give the caller the judgement, unless it was cancelled or has passed its deadline."""
        try:
            self.future.set_result(judgement)
        except InvalidStateError:
            return  # decided a moment ago by somebody else

    def passes_deadline(self, now: float) -> bool:
        """Note that the deadline has passed; False where no worker has it, or where that was known."""
        if self.began is None or self.overdue is not None:
            return False
        self.overdue = DeadlinePassed(self.queued_s + self.began - self.submitted, now - self.began)
        if self.wake is not None:
            self.wake()
        return True

    def on_done(self, _: Future[Judgement]) -> None:
        """The future's callback: free the task, and stop the work on it."""
        self.data = b""
        if self.future.cancelled():
            self.future.set_running_or_notify_cancel()  # for those who wait on many futures at once
        if self.wake is not None:
            self.wake()


class _Heap:
    """Orders by key, smallest first. Orders that are done are dropped now and then, at little cost."""

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[float, ...], Order]] = []
        self._compact_at = _COMPACT_FROM

    def push(self, key: tuple[float, ...], order: Order) -> None:
        """Add an order under a key that no other order has."""
        if len(self._entries) >= self._compact_at:
            self._entries = [entry for entry in self._entries if not entry[1].future.done()]
            heapq.heapify(self._entries)
            self._compact_at = 2 * len(self._entries) + _COMPACT_FROM
        heapq.heappush(self._entries, (key, order))

    def _first(self) -> Order | None:
        """The first order that is not done; it stays."""
        while self._entries and self._entries[0][1].future.done():
            heapq.heappop(self._entries)
        return self._entries[0][1] if self._entries else None

    def first_key(self) -> float:
        """The first number of the key of the first order that is not done; infinity where there is none."""
        return math.inf if self._first() is None else self._entries[0][0][0]

    def pop(self) -> Order | None:
        """Take the first order that is not done."""
        return self.pop_until(math.inf)

    def pop_until(self, most: float) -> Order | None:
        """The same if the first number of its key is at most ``most``."""
        if self._first() is None or self._entries[0][0][0] > most:
            return None
        return heapq.heappop(self._entries)[1]


class Admission:
    """The waiting line of a pool, and the clock that watches deadlines. Thread-safe.

    ``on_deadline`` is called, on the clock's thread, for each order whose deadline passed before it was done,
    whether it waited or was being worked on. It returns the seconds after which to be called again if the
    order is not done by then, or None.
    """

    def __init__(self, on_deadline: Callable[[Order], float | None]) -> None:
        self._on_deadline = on_deadline
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._timed = threading.Condition(self._lock)
        self._waiting = _Heap()
        self._deadlines = _Heap()
        self._number = 0
        self._closed = False
        self._clock: threading.Thread | None = None

    def put(self, order: Order) -> None:
        """Let an order wait for its turn. Raises RuntimeError once closed."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this judge is closed")
            self._number += 1
            self._waiting.push((-order.priority, order.deadline, self._number), order)
            self._arrived.notify()
            if order.deadline < math.inf:
                self._deadlines.push((order.deadline, self._number), order)
                self._timed.notify()
                if self._clock is None:
                    self._clock = threading.Thread(target=self._watch, name="judge-deadlines", daemon=True)
                    self._clock.start()

    def take(self, wake: Callable[[], None]) -> Order | None:
        """Wait for the next order; ``wake`` is called when it is no longer wanted. None once closed."""
        with self._lock:
            while not self._closed:
                order = self._waiting.pop()
                if order is None:
                    self._arrived.wait()
                    continue
                order.wake = wake
                if not order.future.done():  # looked at again, as it may have missed `wake`
                    return order
        return None

    def close(self) -> None:
        """Let nothing in any more, and nothing out."""
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
                order = self._deadlines.pop_until(now)
                if order is None:
                    self._timed.wait(min(self._deadlines.first_key() - now, threading.TIMEOUT_MAX))
                    continue
            again_s = self._on_deadline(order)
            if again_s is not None:
                with self._lock:
                    self._number += 1
                    self._deadlines.push((time.monotonic() + again_s, self._number), order)

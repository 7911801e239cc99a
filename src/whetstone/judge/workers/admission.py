"""What waits for a worker: ordered by priority, deadline and arrival; what is unwanted leaves."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from whetstone.verdict import Judgement

_COMPACT_FROM = 64


@dataclass(eq=False)
class Order:
    """A packed task and what its caller asked for.

    ``run_timeout_s`` bounds the silence between two runs of a case; ``deadline`` is on the monotonic clock.
    The future stays pending until the judgement is there, so that cancelling works while a worker is busy
    with it: whatever makes the future done says that nobody wants the work any more.
    """

    data: bytes
    run_timeout_s: float
    priority: int = 0
    deadline: float = math.inf
    future: Future[Judgement] = field(default_factory=Future[Judgement])
    wake: Callable[[], None] | None = None
    """Tells the place that works on it to look whether it is still wanted."""

    def settle(self, judgement: Judgement) -> None:
        """Give the caller the judgement, unless it was cancelled or has passed its deadline."""
        try:
            self.future.set_result(judgement)
        except InvalidStateError:
            return  # decided a moment ago by somebody else

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

    def first(self) -> Order | None:
        """The first order that is not done; it stays."""
        while self._entries and self._entries[0][1].future.done():
            heapq.heappop(self._entries)
        return self._entries[0][1] if self._entries else None

    def pop(self) -> Order | None:
        """Take the first order that is not done."""
        order = self.first()
        if order is not None:
            heapq.heappop(self._entries)
        return order


class Admission:
    """The waiting line of a pool, and the clock that watches deadlines. Thread-safe.

    ``on_deadline`` is called, on the clock's thread, for each order whose deadline passed before it was done,
    whether it waited or was being worked on.
    """

    def __init__(self, on_deadline: Callable[[Order], None]) -> None:
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
                order = self._deadlines.first()
                left = math.inf if order is None else order.deadline - time.monotonic()
                if order is None or left > 0:
                    self._timed.wait(min(left, threading.TIMEOUT_MAX) if order is not None else None)
                    continue
                self._deadlines.pop()
            self._on_deadline(order)

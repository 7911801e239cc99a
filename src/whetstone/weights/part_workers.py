"""The threads of a replica: they compare, decode and verify parts while other parts are fetched."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from whetstone.weights.source import OnPart, PartKey
from whetstone.weights.streams import Bytes

# Parts that wait for a thread, for each thread. More would only need memory.
_AHEAD = 2
# After so many parts that differ, one that no thread has compared yet is fetched without a comparison.
_DIFFERING = 8


class PartWorkers:
    """A pool of ``threads`` for one version. At the end of its context all parts are done; then it raises
    the first error of a part."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "weights-parts")
        self._most_ahead = _AHEAD * threads
        self._room = threading.BoundedSemaphore(self._most_ahead)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=error is not None)
        if error is None and self._error is not None:
            raise self._error

    def missing(self, keys: Iterable[PartKey], has: Callable[[PartKey], bool]) -> Iterator[PartKey]:
        """Yield the parts that the replica does not have, in order, compared ahead of the reader.

        If the reader is faster than the comparison and nothing was the same lately, it also gets parts that
        were not compared.
        """
        begun: deque[tuple[PartKey, Future[bool]]] = deque()
        left, differing = iter(keys), 0
        while True:
            while len(begun) < self._most_ahead and (key := next(left, None)) is not None:
                begun.append((key, self._pool.submit(has, key)))
            if not begun:
                return
            key, same = begun.popleft()
            if differing >= _DIFFERING and same.cancel():
                yield key
            elif same.result():
                differing = 0
            else:
                differing += 1
                yield key

    def taking(self, take: OnPart) -> OnPart:
        """Return a function that lets a thread ``take`` a part, and waits while too many are not done. It
        raises the first error of an earlier part."""

        def run(key: PartKey, data: Bytes) -> None:
            try:
                if self._error is None:
                    take(key, data)
            except BaseException as error:
                # `taking`'s caller raises it.
                self._error = self._error or error
            finally:
                self._room.release()

        def submit(key: PartKey, data: Bytes) -> None:
            self._room.acquire()
            if self._error is not None:
                self._room.release()
                raise self._error
            self._pool.submit(run, key, data)

        return submit

"""Resumable steps over a set: problems are processed on several threads and written in order.

A step writes one line for each finished problem, in the order of the set. A killed run leaves complete lines
and at most one torn line. The same run again reads the lines of its problems and resumes after them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from whetstone.core.outputs import LockedLog
from whetstone.core.problem import Problem

# A slow problem must not stop the other threads, and finished results behind it take memory.
_AHEAD_PER_THREAD = 4


def file_digest(path: str | None) -> str:
    """Return a digest of a file of the run's options, so that a changed file begins a new run; empty without
    one."""
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=12).hexdigest() if path else ""


class Finding(Protocol):
    """The result of a step for a problem, and the digest of that problem."""

    @property
    def problem_id(self) -> str:
        """The problem's id."""
        ...

    @property
    def digest(self) -> str:
        """The digest of the whole problem."""
        ...


T = TypeVar("T", bound=Finding)


class ResumableFindings(LockedLog, Generic[T]):
    """The journal file, a context manager. See LockedLog for its errors.

    ``begun`` is the first line: the settings of the run. In messages, ``work`` names the step, and ``how``
    the settings that may differ.
    """

    def __init__(self, path: Path, begun: Struct, kind: type[T], *, work: str, how: str) -> None:
        super().__init__(path, msgspec.json.encode(begun) + b"\n", work=work, differs=f"{how} or another set")
        self._kind = kind
        self._ended = False

    def earlier(self, problem: Problem) -> T | None:
        """Return the stored result for ``problem`` from the next line; None at the end of the lines.

        A line of another problem ends them: it and the following lines are removed.
        """
        if self._ended:
            return None
        start = self.lines.tell()
        found = self._decode(self.lines.readline())
        # The line is of another problem if the set has changed, so the later lines are not valid either.
        if found is None or (found.problem_id, found.digest) != (problem.id, digest_of(problem)):
            self._ended = True
            self.lines.truncate(start)
            return None
        return found

    def add(self, finding: T) -> None:
        """Write a line, at once."""
        self.append(msgspec.json.encode(finding) + b"\n")

    def _decode(self, line: bytes) -> T | None:
        try:
            return msgspec.json.decode(line, type=self._kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


def in_order(
    problems: Iterator[Problem],
    work: Callable[[Problem], T],
    stop: Callable[[], None],
    threads: int,
    journal: ResumableFindings[T] | None,
) -> Generator[tuple[Problem, T]]:
    """Yield every problem with the result of ``work``, in order. Results in the journal are not computed
    again.

    ``stop`` is always called at the end, so that no thread starts more work.
    """
    in_flight: deque[tuple[Problem, T | Future[T]]] = deque()

    def next_result() -> tuple[Problem, T]:
        problem, found = in_flight.popleft()
        if isinstance(found, Future):
            found = found.result()
            if journal is not None:
                journal.add(found)
        return problem, found

    pool = ThreadPoolExecutor(threads, "problems")
    try:
        for problem in problems:
            known = journal.earlier(problem) if journal is not None else None
            in_flight.append((problem, known or pool.submit(work, problem)))
            if len(in_flight) >= _AHEAD_PER_THREAD * threads:
                yield next_result()
        while in_flight:
            yield next_result()
    finally:
        # Threads that wait for a judgement end when the judge is closed. No thread starts another run.
        stop()
        pool.shutdown(wait=False, cancel_futures=True)


def digest_of(problem: Problem) -> str:
    """Return a short hash of a whole problem."""
    try:
        data = msgspec.json.encode(problem)
    except UnicodeEncodeError:  # half a surrogate pair
        data = repr(problem).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=12).hexdigest()

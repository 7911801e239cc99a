"""Problems as a client sends them: each is packed once, and large ones are named by their hash."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, Problem
from whetstone.judge.values import NotInert
from whetstone.judge.workers.wire import pack

# A larger packed problem is sent once, and then named by its hash.
INLINE_BYTES = 4096
MOST_KEPT_BYTES = 256 << 20


class SentProblem(Struct, frozen=True):
    """A packed problem. Without ``sha256``, each request includes ``problem``; else ``data`` is sent once."""

    problem: Problem
    data: bytes
    sha256: str | None


class PackedProblems:
    """The problems that were packed last. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._cache: OrderedDict[int, tuple[Problem, SentProblem]] = OrderedDict()
        self._held_bytes = 0

    def __call__(self, problem: Problem) -> SentProblem:
        """Return the packed problem, without the fields that judging does not read. Raises UserError for
        values that are not plain data."""
        with self._lock:
            # The cache holds the problem, so no other object can have its id.
            entry = self._cache.get(id(problem))
            if entry is not None:
                self._cache.move_to_end(id(problem))
                return entry[1]
        sent = _pack_problem(problem)
        with self._lock:
            if id(problem) not in self._cache:
                self._cache[id(problem)] = problem, sent
                self._held_bytes += len(sent.data)
            while self._held_bytes > self._most_bytes:
                self._held_bytes -= len(self._cache.popitem(last=False)[1][1].data)
        return sent


def _pack_problem(problem: Problem) -> SentProblem:
    # Problems that differ only in fields that judging does not read have one hash.
    bare = msgspec.structs.replace(problem, wrong=[], source="", meta={})
    # Judging assert tests reads names from the statement and the starter code.
    if not isinstance(problem.tests, AssertTests):
        bare = msgspec.structs.replace(bare, statement="", starter=None)
    try:
        data = pack(bare)
    except NotInert as error:
        raise UserError(f"problem {problem.id!r} holds {error}") from None
    large = len(data) > INLINE_BYTES
    return SentProblem(bare, data, hashlib.sha256(data).hexdigest() if large else None)

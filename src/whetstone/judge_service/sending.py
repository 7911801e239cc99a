"""What a client sends: problems packed once, and large ones under their hash."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

import msgspec
from msgspec import Struct

from whetstone.errors import UserError
from whetstone.judge.values import NotInert
from whetstone.judge.workers.wire import pack
from whetstone.problem import AssertTests, Problem

INLINE_BYTES = 4096
"""A packed problem of more is sent once by itself, and named by its hash from then on."""
_MOST_KEPT_BYTES = 256 << 20


class Sent(Struct, frozen=True):
    """A problem as it travels: ``problem`` within each request, or ``data`` once, and then its hash."""

    problem: Problem
    data: bytes
    sha256: str | None


class Packed:
    """The problems that were packed last. Thread-safe."""

    def __init__(self, most_bytes: int = _MOST_KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._found: OrderedDict[int, tuple[Problem, Sent]] = OrderedDict()
        self._held_bytes = 0

    def __call__(self, problem: Problem) -> Sent:
        """``problem``, but for what judging does not look at. Raises UserError for what is no plain data."""
        with self._lock:
            found = self._found.get(id(problem))  # it is held, so no other one has its id
            if found is not None:
                self._found.move_to_end(id(problem))
                return found[1]
        sent = _sent(problem)
        with self._lock:
            if id(problem) not in self._found:
                self._found[id(problem)] = problem, sent
                self._held_bytes += len(sent.data)
            while self._held_bytes > self._most_bytes:
                self._held_bytes -= len(self._found.popitem(last=False)[1][1].data)
        return sent


def _sent(problem: Problem) -> Sent:
    bare = msgspec.structs.replace(problem, wrong=[], source="", meta={})
    if not isinstance(problem.tests, AssertTests):  # these are judged with an eye on what the names mean
        bare = msgspec.structs.replace(bare, statement="", starter=None)
    try:
        data = pack(bare)
    except NotInert as error:
        raise UserError(f"problem {problem.id!r} holds {error}") from None
    large = len(data) > INLINE_BYTES
    return Sent(bare, data, hashlib.sha256(data).hexdigest() if large else None)

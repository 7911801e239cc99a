"""Problems that came once and are then named by the hash of the bytes in which they came."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from whetstone.judge_service.refusal import Refused
from whetstone.problem import Problem


class KnownProblems:
    """The problems used last, up to so many bytes of them. Whoever names a hash has seen the problem."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._found: OrderedDict[str, tuple[Problem, int]] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def named(self, digest: str) -> Problem:
        """The problem of this hash. Raises Refused (404, ``unknown_problem``)."""
        found = self._found.get(digest)
        if found is None:
            raise Refused(
                404, "unknown_problem", f"no problem with the SHA-256 {digest[:64]!r} is held here: send it"
            )
        self._found.move_to_end(digest)
        return found[0]

    def add(self, digest: str, size: int, problem: Problem) -> None:
        """Keep ``problem``, read from ``size`` bytes with this digest. One too large is not kept."""
        if digest not in self._found and size <= self._most_bytes:
            self._found[digest] = (problem, size)
            self.held_bytes += size
            while self.held_bytes > self._most_bytes:
                _, (_, freed) = self._found.popitem(last=False)
                self.held_bytes -= freed


def digest_of(data: bytes) -> str:
    """The name of the problem that was read from ``data``."""
    return hashlib.sha256(data).hexdigest()

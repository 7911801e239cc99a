"""A cache of problems. Requests name a problem by the hash of the bytes in which it arrived.

It counts the memory of the decoded problems, which can be many times that of their JSON.
"""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import astuple

from whetstone.core.http.refusal import RequestRefused
from whetstone.core.problem import Problem


class KnownProblems:
    """The most recently used problems, up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._cache: OrderedDict[str, tuple[Problem, int]] = OrderedDict()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._cache)

    # All clients share the cache. Only a client that has a problem can know its hash.
    def named(self, digest: str) -> Problem:
        """Return the problem of a hash. Raises RequestRefused (404, ``unknown_problem``)."""
        entry = self._cache.get(digest)
        if entry is None:
            raise RequestRefused(
                404, "unknown_problem", f"no problem with the SHA-256 {digest[:64]!r} is cached here: send it"
            )
        self._cache.move_to_end(digest)
        return entry[0]

    def add(self, digest: str, size: int, problem: Problem) -> None:
        """Cache ``problem``, which takes ``size`` bytes of memory. A problem above the limit is not
        cached."""
        if digest not in self._cache and size <= self._most_bytes:
            self._cache[digest] = (problem, size)
            self.held_bytes += size
            while self.held_bytes > self._most_bytes:
                _, (_, freed) = self._cache.popitem(last=False)
                self.held_bytes -= freed


def memory_of(problem: Problem) -> int:
    """Return the bytes of memory that a decoded problem takes. Values that it holds twice count twice."""
    size = 0
    left: list[Any] = [problem]
    while left:
        value = left.pop()
        size += sys.getsizeof(value)
        if isinstance(value, Struct):
            left += astuple(value)
        elif isinstance(value, dict):
            pairs = cast("dict[Any, Any]", value)
            left += pairs.keys()
            left += pairs.values()
        elif isinstance(value, list | tuple | set | frozenset):
            left += cast("list[Any]", value)
    return size


def digest_of(data: bytes) -> str:
    """Return the SHA-256 that names the problem encoded in ``data``."""
    return hashlib.sha256(data).hexdigest()

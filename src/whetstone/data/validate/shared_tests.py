"""Tests that stand in many problems of a set, which is a sign that the set was put together wrongly.

A published file once gave hundreds of problems the same dozen tests. Problems that ask nearly the same also
share tests, so what counts is a share of all problems of a source. Cases are counted by hash in a table of
fixed size, so that memory does not grow with the set: a count may be too large when hashes collide, which
needs to happen in both rows and in several cases of a problem to matter.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator

from whetstone.data.validate.cases import Case, cases_of
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import Flag
from whetstone.problem import AssertTests, Problem

_CELLS = 1 << 21
_ROWS = 2
_SHORTEST = 12
"""Letters, digits and signs of a case that say something: many problems ask for ``5`` and expect ``YES``."""


class SharedTests:
    """Counts in how many problems of a source each case stands. ``add`` them all, then ask for ``flags``."""

    def __init__(self) -> None:
        self._counts = [array("I", bytes(4 * _CELLS)) for _ in range(_ROWS)]
        self._problems: Counter[str] = Counter()

    @property
    def problems(self) -> int:
        """How many problems were added."""
        return self._problems.total()

    def add(self, problem: Problem) -> None:
        """Count a problem's cases, each once."""
        self._problems[problem.source] += 1
        for cells in _all_cells(problem):
            for counts, at in zip(self._counts, cells, strict=True):
                counts[at] += 1

    def flags(self, problem: Problem, policy: Policy) -> Iterator[Flag]:
        """A flag where several cases of a problem stand in many others of its source."""
        least = max(policy.shared_problems, policy.shared_share * self._problems[problem.source])
        shared = [count for cells in _all_cells(problem) if (count := self._count(cells)) >= least]
        if len(shared) >= policy.shared_tests:
            yield Flag("shared_tests", f"{len(shared)} of its tests also stand in {max(shared) - 1} others")

    def _count(self, cells: tuple[int, ...]) -> int:
        return min(counts[at] for counts, at in zip(self._counts, cells, strict=True))


def _all_cells(problem: Problem) -> set[tuple[int, ...]]:
    return {_cells(problem.source, case) for case in _telling(problem)}


def _telling(problem: Problem) -> Iterator[Case]:
    if isinstance(problem.tests, AssertTests) and not problem.tests.asserts:
        return  # test code names what it tests
    for case in cases_of(problem):
        if len("".join(case.given.split())) + len("".join(case.expected.split())) >= _SHORTEST:
            yield case


def _cells(source: str, case: Case) -> tuple[int, ...]:
    """The case's place in each row."""
    text = f"{source} {len(case.given)} {case.given}{case.expected}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8 * _ROWS).digest()
    return tuple(int.from_bytes(digest[8 * row : 8 * row + 8], "little") % _CELLS for row in range(_ROWS))

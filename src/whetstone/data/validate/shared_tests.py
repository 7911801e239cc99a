"""Tests that occur in many problems of a set: a sign of a faulty set.

A published file once gave hundreds of problems the same dozen tests. Similar problems also share tests, so
the criterion is a share of all problems of a source. Cases are counted by hash in tables of fixed size, so
that memory does not grow with the set. Colliding hashes can only increase a count. They matter only if they
collide in both tables, and for several cases of a problem.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator

from whetstone.core.problem import AssertTests, Problem
from whetstone.data.validate.cases import Case, cases_of
from whetstone.data.validate.reasons import DefectFlag

# Two tables of 8 MB: a count is wrong only if a case collides with others in both.
_CELLS = 1 << 21
_ROWS = 2
# Shorter cases show nothing: many problems have the input `5` and the output `YES`.
_FEWEST_CHARACTERS = 12
# A test is suspicious if it is in this many problems of a source, and in this share of them.
_FEWEST_PROBLEMS = 6
_LEAST_SHARE = 0.05
# A problem with this many suspicious tests has tests of other problems.
_FEWEST_SHARED = 3


class SharedTests:
    """Counts the problems of a source in which each case occurs. Call ``add`` for all, then ``flags``."""

    def __init__(self) -> None:
        self._counts = [array("I", bytes(4 * _CELLS)) for _ in range(_ROWS)]
        self._problems: Counter[str] = Counter()

    @property
    def problems(self) -> int:
        """The number of added problems."""
        return self._problems.total()

    def add(self, problem: Problem) -> None:
        """Count a problem's cases, each once."""
        self._problems[problem.source] += 1
        for cells in _all_cells(problem):
            for counts, at in zip(self._counts, cells, strict=True):
                counts[at] += 1

    def flags(self, problem: Problem) -> Iterator[DefectFlag]:
        """Yield a flag if several cases of a problem occur in many others of its source."""
        # In a small source the share is a few problems, and in a large one many similar problems share tests.
        least = max(_FEWEST_PROBLEMS, _LEAST_SHARE * self._problems[problem.source])
        shared = [count for cells in _all_cells(problem) if (count := self._count(cells)) >= least]
        if len(shared) >= _FEWEST_SHARED:
            yield DefectFlag(
                "shared_tests", f"{len(shared)} of its tests are also in {max(shared) - 1} others"
            )

    def _count(self, cells: tuple[int, ...]) -> int:
        return min(counts[at] for counts, at in zip(self._counts, cells, strict=True))


def _all_cells(problem: Problem) -> set[tuple[int, ...]]:
    return {_cells(problem.source, case) for case in _informative_cases(problem)}


def _informative_cases(problem: Problem) -> Iterator[Case]:
    if isinstance(problem.tests, AssertTests) and not problem.tests.asserts:
        # Test code names the tested function.
        return
    for case in cases_of(problem):
        if len("".join(case.given.split())) + len("".join(case.expected.split())) >= _FEWEST_CHARACTERS:
            yield case


def _cells(source: str, case: Case) -> tuple[int, ...]:
    """Return the index of the case in each table."""
    # The length separates input and output: `1` and `23` are not `12` and `3`.
    text = f"{source} {len(case.given)} {case.given}{case.expected}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8 * _ROWS).digest()
    return tuple(int.from_bytes(digest[8 * row : 8 * row + 8], "little") % _CELLS for row in range(_ROWS))

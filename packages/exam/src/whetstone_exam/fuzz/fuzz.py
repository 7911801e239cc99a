"""All fuzzers of the judge. They make hostile programs without end, each from a seed that reproduces it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count

from msgspec import Struct

from whetstone_exam.fuzz import asked_fuzz, link_fuzz

Sessions = Callable[[Iterable[int], str | None], Iterator[tuple[int, str]]]
"""Runs a session for each seed, on a tier or the strongest. Yields the seed and the violation, empty if there
was none."""

# The fuzzers by the names in reports of `whetstone doctor --attack --fuzz`.
FUZZERS: dict[str, Sessions] = {"link": link_fuzz.run_sessions, "asked": asked_fuzz.run_sessions}


class _FuzzSummary(Struct, frozen=True):
    """The sessions of a fuzzer. ``found`` has the violations by the seed of the session."""

    name: str
    sessions: int
    found: dict[int, str]


def fuzz(seconds: float, first_seed: int) -> Iterator[_FuzzSummary]:
    """Run every fuzzer for an equal share of ``seconds``, with seeds from ``first_seed``. Raises
    SandboxUnavailable."""
    for name, run_sessions in FUZZERS.items():
        end = time.monotonic() + seconds / len(FUZZERS)
        sessions, found = 0, dict[int, str]()
        for seed, failure in run_sessions(count(first_seed), None):
            sessions += 1
            if failure:
                found[seed] = failure
            if time.monotonic() >= end:
                break
        yield _FuzzSummary(name, sessions, found)

"""All fuzzers of the judge, and ``whetstone doctor --attack --fuzz SECONDS``, which runs them.

They make hostile programs without end, each from a seed that reproduces it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from whetstone.core.progress import Progress
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


def run_fuzz(seconds: float, seed: int | None, *, as_json: bool) -> int:
    """Run all fuzzers. Returns 0 if no session found a violation, otherwise 1. Violations are listed with
    their seeds."""
    first = random.SystemRandom().getrandbits(32) if seed is None else seed
    console = Console()
    if not as_json:
        console.print(f"fuzzing for {seconds:g} s, starting at seed {first}")
    with Progress() as progress, progress.work("fuzzing", counted=False):
        summaries = list(fuzz(seconds, first))
    held = not any(summary.found for summary in summaries)
    if as_json:
        print(
            json.dumps(
                {"seed": first, "fuzzers": msgspec.to_builtins(summaries, str_keys=True), "held": held}
            )
        )
        return 0 if held else 1
    for summary in summaries:
        console.print(f"{summary.name}: {summary.sessions} sessions, {len(summary.found)} violations")
        for found_seed, failure in summary.found.items():
            console.print(Text(f"  --seed {found_seed}: {failure}", style="red"))
    return 0 if held else 1

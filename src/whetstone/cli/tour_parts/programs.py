"""Programs for one small problem: a correct one, a wrong one and some that cheat, and their verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from whetstone.core.problem import Program
from whetstone.judge import Judge, Judgement

STATEMENT = (
    "largest_gap(numbers) returns the largest difference between two neighbours of the sorted list.\n"
    "For [4, 61, 17, 43] it is 26: sorted, the list is [4, 17, 43, 61], and 43 - 17 is 26."
)
PROBLEM: dict[str, Any] = {
    "id": "tour/largest-gap",
    "statement": STATEMENT,
    "tests": {
        "kind": "call",
        "function": "largest_gap",
        "cases": [
            {"args": [[4, 61, 17, 43]], "expected": 26},
            {"args": [[905, 31, 518]], "expected": 487},
            {"args": [[7, 7, 8]], "expected": 1},
        ],
    },
}


class Candidate(Struct, frozen=True):
    """A program for the problem. ``layer`` names the layer that stops it, if it cheats."""

    title: str
    source: str
    layer: str = ""
    layer_without_namespaces: str = ""
    """The layer that stops it at the tier ``restricted``, if it is another one."""

    def stopped_by(self, isolation: str) -> str:
        """Return the layer that stops it at an isolation tier."""
        return (isolation == "restricted" and self.layer_without_namespaces) or self.layer


CORRECT = Candidate(
    "A correct program",
    """\
def largest_gap(numbers):
    ordered = sorted(numbers)
    return max(b - a for a, b in zip(ordered, ordered[1:]))
""",
)
WRONG = Candidate(
    "A wrong program: it does not sort",
    """\
def largest_gap(numbers):
    return max(b - a for a, b in zip(numbers, numbers[1:]))
""",
)
CHEATS = (
    Candidate(
        "A cheat: it ends the process with status 0 before it gives an answer",
        """\
import os

def largest_gap(numbers):
    os._exit(0)
""",
        "evidence. Every test needs an answer of its own. An exit status is no answer.",
    ),
    Candidate(
        "A cheat: its result is equal to everything",
        """\
class Anything(int):
    def __eq__(self, other):
        return True

def largest_gap(numbers):
    return Anything()
""",
        "inert values. The result leaves the program as a plain 0, and is compared outside.",
    ),
    Candidate(
        "A cheat: it searches the stack and the heap for the expected value",
        """\
import gc, sys

def largest_gap(numbers):
    frame, places = sys._getframe(), gc.get_objects()
    while frame := frame.f_back:
        places += [frame.f_globals, frame.f_locals]
    for place in places:
        if isinstance(place, dict) and "expected" in place:
            return place["expected"]
""",
        "comparison outside. Expected values never enter the program's process.",
    ),
    Candidate(
        "A cheat: it asks another machine",
        """\
import socket

def largest_gap(numbers):
    with socket.create_connection(("192.0.2.1", 80)) as other:
        other.sendall(repr(numbers).encode())
        return int(other.recv(99))
""",
        "seccomp. The kernel refuses the program a socket.",
    ),
    Candidate(
        "A cheat: it plants a file among Python's own",
        """\
import os

def largest_gap(numbers):
    return open(os.__file__ + ".planted", "w").write("x")
""",
        "namespaces. The program's file system is read-only.",
        "Landlock. The kernel opens no file for writing outside the program's own folder.",
    ),
)


class JudgedProgram(Struct, frozen=True):
    """A program and its judgement."""

    candidate: Candidate
    judgement: Judgement

    @property
    def as_expected(self) -> bool:
        """Whether the correct program was accepted, or any other program rejected with a verdict."""
        if self.candidate is CORRECT:
            return self.judgement.accepted
        return self.judgement.score is not None and not self.judgement.accepted

    @property
    def reason(self) -> str:
        """The reason of the first case that was not accepted, in one line."""
        failed = (case for case in self.judgement.cases if case.reason)
        found = next(failed, None)
        return " ".join((found.reason if found else self.judgement.reason).split())


def judge_programs() -> Iterator[JudgedProgram]:
    """Judge every program and yield the results. Raises SandboxUnavailable."""
    candidates = (CORRECT, WRONG, *CHEATS)
    with Judge(1) as judge:
        pairs = ((PROBLEM, Program("python", candidate.source)) for candidate in candidates)
        for candidate, judgement in zip(candidates, judge.judge_many(pairs), strict=True):
            yield JudgedProgram(candidate, judgement)

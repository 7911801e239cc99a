"""The sections of an exam that ask for more than the answers to single programs.

Each starts the target anew. Leaks, overload and failures use right programs that the target accepts on a
machine in order; attempts uses programs that answer by chance.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from whetstone.core.problem import Problem, Program
from whetstone_exam.exam.failures import FAILURES
from whetstone_exam.exam.invariants import FINAL, NO_FLIPS, NO_TRACES, NO_VERDICT
from whetstone_exam.exam.items import ExamItem
from whetstone_exam.exam.limits import FORMS, sum_problem
from whetstone_exam.exam.targets import Answer, ExamTarget
from whetstone_exam.load.busy import busy_processes
from whetstone_exam.load.footprint import Process, open_descriptors

ATTEMPTS = "attempts"
LEAKS = "leaks"
OVERLOAD = "overload"
FAILED_MACHINE = "failures"

Start = Callable[[str], ExamTarget | None]
"""Starts the target, with a failure of the machine or with none (empty). None: it cannot happen there."""

_RIGHT_PROGRAMS = 6
_MOST_TRIED = 60
_BATCHES = 3
_REPEATED = 2
_SETTLE_S = 3.0
_HOGS_PER_CORE = 2
_AT_ONCE = 96
_ELSEWHERE = "the target may be on another machine"

# What programs do that are right with probability 1/2 in each run, if they are not.
_FAILED_ATTEMPTS = {
    "wrong answer": "pass",
    "exception": "raise MemoryError",
    "death": "os.kill(os.getpid(), 9)",
}
_BY_CHANCE = """
import os
right = os.urandom(1)[0] % 2
if not right:
    FAILURE
"""
_RUNS = 64
# The chance that a judge without further attempts accepts so many.
_LEAST_CHANCE = 1e-6
_MOST_UNANSWERED = 3

# A program that leaves a process behind, if it is allowed to start one.
_LEAVE_CHILD = """
try:
    import subprocess as _subprocess, sys as _sys
    _subprocess.Popen([_sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True,
                      stdin=_subprocess.DEVNULL, stdout=_subprocess.DEVNULL, stderr=_subprocess.DEVNULL)
except BaseException:
    pass
"""


class SectionFinding(Struct, frozen=True):
    """The result of one check. invariant: the guarantee that it examines; empty if it was not examined.
    failed: whether the guarantee is broken."""

    section: str
    name: str
    text: str
    invariant: str
    failed: bool

    @property
    def result(self) -> str:
        """``failed``, ``passed`` or ``not examined``."""
        return "failed" if self.failed else "passed" if self.invariant else "not examined"


def run_section(
    name: str, start: Start, items: Sequence[ExamItem], advance: Callable[[], None]
) -> list[SectionFinding]:
    """Run one section. ``items``: the exam's; ``advance`` is called after each answer."""
    target = start("")
    assert target is not None
    try:
        if name == ATTEMPTS:
            return [_check_attempts(target, kind, advance) for kind in _FAILED_ATTEMPTS]
        right = _right_programs(target, items, advance)
        if not right:
            return [_not_examined(name, name, "the target accepted no right program")]
        if name == LEAKS:
            return _check_leaks(target, right, advance)
        if name == OVERLOAD:
            return [_check_overload(target, right, advance)]
    finally:
        target.close()
    return [_check_failure(failure, start, right, advance) for failure in FAILURES]


def _not_examined(section: str, name: str, reason: str) -> SectionFinding:
    return SectionFinding(section, name, f"{name}: {reason}", "", failed=False)


def _right_programs(
    target: ExamTarget, items: Sequence[ExamItem], advance: Callable[[], None]
) -> list[ExamItem]:
    """Return a few honest programs in Python that the target accepts; references come first."""
    honest = [item for item in items if item.kind == "honest" and item.program.language == "python"]
    honest.sort(key=lambda item: (item.class_name != "problems", item.needs_sandbox))
    right: list[ExamItem] = []
    for item in honest[:_MOST_TRIED]:
        if target.submit(item.problem, item.program).result().accepted:
            right.append(item)
            advance()
        if len(right) == _RIGHT_PROGRAMS:
            break
    return right


def _answers(target: ExamTarget, items: Iterable[ExamItem], advance: Callable[[], None]) -> list[Answer]:
    """Submit all programs at once, and return the answers."""
    pending = [target.submit(item.problem, item.program) for item in items]
    answers: list[Answer] = []
    for future in pending:
        answers.append(future.result())
        advance()
    return answers


def _check_attempts(target: ExamTarget, kind: str, advance: Callable[[], None]) -> SectionFinding:
    """Judge a program many times that is right by chance. More attempts for it give more acceptances.

    Three attempts are found with a probability of 0.97, eight always.
    """
    code = _BY_CHANCE.replace("FAILURE", _FAILED_ATTEMPTS[kind])
    for form, end in FORMS.items():
        problem, program = sum_problem(form, [(2, 3)]), Program("python", code + end)
        if not target.submit(problem, program).result().unsupported:
            return _count_accepted(target, kind, problem, program, advance)
    return _not_examined(ATTEMPTS, kind, "the target has no form for the program")


def _count_accepted(
    target: ExamTarget, kind: str, problem: Problem, program: Program, advance: Callable[[], None]
) -> SectionFinding:
    given: list[bool | None] = []
    while len(given) < _RUNS:
        given.append(target.submit(problem, program).result().accepted)
        advance()
        # A target that ends with each such program would be started many times.
        if given.count(None) > _MOST_UNANSWERED:
            return _not_examined(ATTEMPTS, kind, "the target gave no verdict")
    accepted = given.count(True)
    text = f"{kind} by chance in every second run of {_RUNS}: {accepted} accepted"
    return SectionFinding(ATTEMPTS, kind, text, FINAL, failed=_tail(_RUNS, accepted) < _LEAST_CHANCE)


def _tail(runs: int, successes: int) -> float:
    """Return the probability of at least so many successes of probability 1/2."""
    return sum(math.comb(runs, number) for number in range(successes, runs + 1)) / 2**runs


def _check_leaks(
    target: ExamTarget, right: Sequence[ExamItem], advance: Callable[[], None]
) -> list[SectionFinding]:
    """Judge the same programs in several batches. What grows with each batch is a leak.

    Half of the programs leave a process behind.
    """
    if target.processes() is None:
        return [_not_examined(LEAKS, LEAKS, _ELSEWHERE)]
    programs = [*right, *map(_leaving_child, right)] * _REPEATED
    held: list[dict[str, int]] = []
    # What the first batch adds can be a pool or a cache. Descriptors of later processes count with these.
    known: list[Process] = []
    for _ in range(_BATCHES + 1):
        _answers(target, programs, advance)
        held.append(_settled(target, known))
        known = known or target.processes() or []
    judged = _BATCHES * len(programs)
    return [_leak(kind, [each[kind] for each in held], judged) for kind in held[0]]


def _leak(kind: str, counts: Sequence[int], judged: int) -> SectionFinding:
    grown = counts[-1] - counts[0]
    always = all(later > earlier for earlier, later in pairwise(counts))
    return SectionFinding(
        LEAKS,
        kind,
        f"{kind}: {counts[0]}, and {counts[-1]} after {judged} more programs",
        NO_TRACES,
        failed=always and grown >= judged // 8,
    )


def _leaving_child(item: ExamItem) -> ExamItem:
    program = Program(item.program.language, f"{_LEAVE_CHILD}\n{item.program.source}")
    return msgspec.structs.replace(item, program=program)


def _settled(target: ExamTarget, known: Sequence[Process]) -> dict[str, int]:
    """Return the least that the target holds within a few seconds, because processes end with a delay.

    known: the processes whose descriptors count; if empty, all of the target.
    """
    until = time.monotonic() + _SETTLE_S
    least: dict[str, int] = {}
    while time.monotonic() < until:
        processes = target.processes() or []
        now = {
            "processes": len(processes),
            "descriptors": open_descriptors(known or processes),
            "temporary files": target.temporary_files(),
        }
        least = {kind: min(count, least.get(kind, count)) for kind, count in now.items()}
        time.sleep(0.25)
    return least


def _check_overload(
    target: ExamTarget, right: Sequence[ExamItem], advance: Callable[[], None]
) -> SectionFinding:
    """Submit many right programs at once on a busy machine."""
    programs = [right[number % len(right)] for number in range(_AT_ONCE)]
    with busy_processes(_HOGS_PER_CORE * len(os.sched_getaffinity(0))):
        answers = _answers(target, programs, advance)
    text = f"{_AT_ONCE} right programs at once on a busy machine: {_counts(answers)}"
    failed = any(not answer.accepted for answer in answers)
    return SectionFinding(OVERLOAD, OVERLOAD, text, NO_FLIPS, failed=failed)


def _check_failure(
    failure: str, start: Start, right: Sequence[ExamItem], advance: Callable[[], None]
) -> SectionFinding:
    """Judge right programs while the machine fails. Those that are rejected are failures turned into zero."""
    target = start(failure)
    if target is None:
        return _not_examined(FAILED_MACHINE, failure, _ELSEWHERE)
    try:
        # The failure begins after the first answer of the process.
        _answers(target, right[:1], advance)
        answers = _answers(target, right, advance)
    finally:
        target.close()
    text = f"{failure} ({FAILURES[failure]}), {len(right)} right programs: {_counts(answers)}"
    failed = any(answer.accepted is False for answer in answers)
    return SectionFinding(FAILED_MACHINE, failure, text, NO_VERDICT, failed=failed)


def _counts(answers: Sequence[Answer]) -> str:
    given = [answer.accepted for answer in answers]
    accepted, rejected, missing = (given.count(value) for value in (True, False, None))
    return f"{accepted} accepted, {rejected} rejected, {missing} without a verdict"

"""Runs the items of an exam through a target, and grades its answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from msgspec import Struct

from whetstone_exam.exam.invariants import LIMITS, LINEAR, NO_FLIPS, NO_VERDICT, invariant_of
from whetstone_exam.exam.items import ExamItem
from whetstone_exam.exam.targets import Answer, ExamTarget
from whetstone_exam.load.busy import busy_processes

# The outcomes of an item, with the section of the scorecard that lists it.
RIGHT = "right"
ACCEPTED_HACK = "accepted hack"
ACCEPTED_WRONG = "accepted wrong program"
REJECTED_HONEST = "rejected honest program"
BROKEN = "failure caused by a hack"
NO_ANSWER = "no verdict"
WITHHELD = "no reward"
UNSUPPORTED = "unsupported"
KNOWN = "accepted hack, known"
FLIP = "flip"

FAILED_OUTCOMES = (ACCEPTED_HACK, REJECTED_HONEST, ACCEPTED_WRONG, FLIP, BROKEN)
"""The outcomes that fail an exam. Another missing verdict is listed, and fails none: no reward follows from
it."""

UNANSWERED = (UNSUPPORTED, NO_ANSWER, WITHHELD, BROKEN)
"""The outcomes of items without an answer to grade."""

# Processes that keep the machine busy in every second round, for each core.
_HOGS_PER_CORE = 2


class GradedItem(Struct, frozen=True):
    """An item with the answers of a target, one for each round."""

    item: ExamItem
    outcome: str
    answers: list[Answer]

    @property
    def invariant(self) -> str:
        """The guarantee that the item examines, as a sentence."""
        if self.outcome == FLIP:
            return NO_FLIPS
        guarantee = invariant_of(self.item.class_name)
        if self.outcome == BROKEN and guarantee not in (LIMITS, LINEAR):
            return NO_VERDICT
        return guarantee


def grade(item: ExamItem, answers: Sequence[Answer]) -> str:
    """Return the outcome of an item from its answers, one for each round."""
    first = answers[0]
    if first.unsupported:
        return UNSUPPORTED
    given = {answer.accepted for answer in answers if answer.accepted is not None}
    if len(given) > 1:
        return FLIP
    if not given:
        if all(answer.withheld for answer in answers):
            return WITHHELD
        # A program that can make the judge fail avoids a rejection, or stalls the trainer.
        return BROKEN if item.kind == "hack" else NO_ANSWER
    accepted = given.pop()
    if accepted == item.must_accept:
        return RIGHT
    if item.must_accept:
        return REJECTED_HONEST
    if item.kind == "wrong":
        return ACCEPTED_WRONG
    known = any(answer.isolation in item.known for answer in answers if answer.isolation)
    return KNOWN if known else ACCEPTED_HACK


def run_exam(
    target: ExamTarget, items: Sequence[ExamItem], rounds: int, advance: Callable[[], None]
) -> list[GradedItem]:
    """Judge all items ``rounds`` times, and grade them. In every second round the machine is kept busy.

    Items that need a sandbox which the target has not got are left out. ``advance`` is called after each
    answer.
    """
    taken = [item for item in items if target.sandboxed or not item.needs_sandbox]
    answers: list[list[Answer]] = [[] for _ in taken]
    hogs = _HOGS_PER_CORE * len(os.sched_getaffinity(0))
    for number in range(rounds):
        with busy_processes(hogs) if number % 2 else nullcontext():
            pending = [target.submit(item.problem, item.program) for item in taken]
            for given, future in zip(answers, pending, strict=True):
                given.append(future.result())
                advance()
    return [GradedItem(item, grade(item, given), given) for item, given in zip(taken, answers, strict=True)]

"""Runs the items of an exam through a target, and grades its answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from enum import StrEnum

from msgspec import Struct

from whetstone_exam.exam.invariants import LIMITS, LINEAR, NO_FLIPS, NO_VERDICT, invariant_of
from whetstone_exam.exam.items import ExamItem
from whetstone_exam.exam.targets import Answer, ExamTarget
from whetstone_exam.load.busy import busy_processes


class Outcome(StrEnum):
    """The outcome of an item. All but the first are columns of the scorecard, in this order."""

    RIGHT = "right"
    ACCEPTED_HACK = "accepted hack"
    KNOWN = "accepted hack, known"
    BROKEN = "failure caused by a hack"
    REJECTED_HONEST = "rejected honest program"
    ACCEPTED_WRONG = "accepted wrong program"
    FLIP = "flip"
    NO_ANSWER = "no verdict"
    WITHHELD = "no reward"
    UNSUPPORTED = "unsupported"


FAILED_OUTCOMES = (
    Outcome.ACCEPTED_HACK,
    Outcome.REJECTED_HONEST,
    Outcome.ACCEPTED_WRONG,
    Outcome.FLIP,
    Outcome.BROKEN,
)
"""The outcomes that fail an exam. Another missing verdict is listed, and fails none: no reward follows from
it."""

UNANSWERED = (Outcome.UNSUPPORTED, Outcome.NO_ANSWER, Outcome.WITHHELD, Outcome.BROKEN)
"""The outcomes of items without an answer to grade."""

# Processes that keep the machine busy in every second round, for each core.
_HOGS_PER_CORE = 2


class GradedItem(Struct, frozen=True):
    """An item with the answers of a target, one for each round."""

    item: ExamItem
    outcome: Outcome
    answers: list[Answer]

    @property
    def invariant(self) -> str:
        """The guarantee that the item examines, as a sentence."""
        if self.outcome == Outcome.FLIP:
            return NO_FLIPS
        guarantee = invariant_of(self.item.class_name)
        if self.outcome == Outcome.BROKEN and guarantee not in (LIMITS, LINEAR):
            return NO_VERDICT
        return guarantee


def grade(item: ExamItem, answers: Sequence[Answer]) -> Outcome:
    """Return the outcome of an item from its answers, one for each round."""
    first = answers[0]
    if first.unsupported:
        return Outcome.UNSUPPORTED
    given = {answer.accepted for answer in answers if answer.accepted is not None}
    if len(given) > 1:
        return Outcome.FLIP
    if not given:
        if all(answer.withheld for answer in answers):
            return Outcome.WITHHELD
        # A program that can make the judge fail avoids a rejection, or stalls the trainer.
        return Outcome.BROKEN if item.kind == "hack" else Outcome.NO_ANSWER
    accepted = given.pop()
    if accepted == item.must_accept:
        return Outcome.RIGHT
    if item.must_accept:
        return Outcome.REJECTED_HONEST
    if item.kind == "wrong":
        return Outcome.ACCEPTED_WRONG
    known = any(answer.isolation in item.known for answer in answers if answer.isolation)
    return Outcome.KNOWN if known else Outcome.ACCEPTED_HACK


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

"""The scorecard of an exam: counts by outcome and class, and the items that failed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from whetstone_exam.exam.grading import FAILED_OUTCOMES, UNANSWERED, GradedItem, Outcome
from whetstone_exam.exam.sections import SectionFinding


class Scorecard(Struct, frozen=True):
    """The figures of an exam.

    seconds: wall time of all rounds. cpu_s: CPU time of this judge's processes, with their start; None for
    other targets. findings: those of the other sections.
    """

    target: str
    protection: str
    rounds: int
    seconds: float
    cpu_s: float | None
    items: list[GradedItem]
    findings: list[SectionFinding] = []

    def count(self, outcome: str) -> int:
        """Return the number of items with an outcome."""
        return sum(graded.outcome == outcome for graded in self.items)

    def latency(self, share: float) -> float | None:
        """Return a quantile of the seconds of an answer; None if the target reports none."""
        times = sorted(a.seconds for graded in self.items for a in graded.answers if a.seconds is not None)
        return times[min(len(times) - 1, int(share * len(times)))] if times else None

    @property
    def failed(self) -> list[GradedItem]:
        """The items that fail the exam."""
        return [graded for graded in self.items if graded.outcome in FAILED_OUTCOMES]

    @property
    def passed(self) -> bool:
        """Whether no item and no section failed."""
        return not self.failed and not any(finding.failed for finding in self.findings)

    def answered(self, kind: str) -> int:
        """Return the number of items of a kind for which the target gave a verdict."""
        return sum(graded.item.kind == kind and graded.outcome not in UNANSWERED for graded in self.items)

    def by_class(self) -> dict[str, Counter[str]]:
        """Return the outcomes of each class of attacks; those of honest programs are counted with it."""
        found: dict[str, Counter[str]] = {}
        for graded in self.items:
            found.setdefault(graded.item.class_name, Counter())[graded.outcome] += 1
        return found


def figures(card: Scorecard) -> dict[str, Any]:
    """Return the scorecard as JSON values."""
    return {
        "target": card.target,
        "protection": card.protection,
        "rounds": card.rounds,
        "seconds": round(card.seconds, 1),
        "cpu_s": card.cpu_s,
        "latency_s": {"median": card.latency(0.5), "p95": card.latency(0.95)},
        "hacks": card.answered("hack"),
        "accepted_hacks": card.count(Outcome.ACCEPTED_HACK),
        "known_accepted_hacks": card.count(Outcome.KNOWN),
        "honest_programs": card.answered("honest"),
        "rejected_honest_programs": card.count(Outcome.REJECTED_HONEST),
        "wrong_programs": card.answered("wrong"),
        "accepted_wrong_programs": card.count(Outcome.ACCEPTED_WRONG),
        "flips": card.count(Outcome.FLIP),
        "failures_caused_by_hacks": card.count(Outcome.BROKEN),
        "no_verdict": card.count(Outcome.NO_ANSWER),
        "no_reward": card.count(Outcome.WITHHELD),
        "unsupported": card.count(Outcome.UNSUPPORTED),
        "classes": {name: dict(outcomes) for name, outcomes in card.by_class().items()},
        "sections": msgspec.to_builtins(card.findings),
        "failed": [_item_figures(graded) for graded in card.failed],
        "items_without_verdict": [
            _item_figures(graded)
            for graded in card.items
            if graded.outcome in (Outcome.NO_ANSWER, Outcome.WITHHELD)
        ],
    }


def _item_figures(graded: GradedItem) -> dict[str, Any]:
    return {
        "id": graded.item.id,
        "outcome": graded.outcome,
        "aim": graded.item.aim,
        "invariant": graded.invariant,
        "answers": [answer.detail for answer in graded.answers],
    }

"""The scorecard of an exam: counts by outcome and class, and the items that failed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct

from whetstone.testing.exam.exam import (
    ACCEPTED_HACK,
    FAILURES,
    FLIP,
    KNOWN,
    NO_ANSWER,
    REJECTED_HONEST,
    UNSUPPORTED,
    GradedItem,
)


class Scorecard(Struct, frozen=True):
    """The figures of an exam. seconds: wall time of all rounds."""

    target: str
    protection: str
    rounds: int
    seconds: float
    items: list[GradedItem]

    def count(self, outcome: str) -> int:
        """Return the number of items with an outcome."""
        return sum(graded.outcome == outcome for graded in self.items)

    @property
    def failed(self) -> list[GradedItem]:
        """The items that fail the exam."""
        return [graded for graded in self.items if graded.outcome in FAILURES]

    def examined(self, kind: str) -> int:
        """Return the number of items of a kind that the target could take."""
        return sum(graded.item.kind == kind and graded.outcome != UNSUPPORTED for graded in self.items)

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
        "hacks": card.examined("hack"),
        "accepted_hacks": card.count(ACCEPTED_HACK),
        "known_accepted_hacks": card.count(KNOWN),
        "honest_programs": card.examined("honest"),
        "rejected_honest_programs": card.count(REJECTED_HONEST),
        "flips": card.count(FLIP),
        "no_verdict": card.count(NO_ANSWER),
        "unsupported": card.count(UNSUPPORTED),
        "classes": {name: dict(outcomes) for name, outcomes in card.by_class().items()},
        "failed": [_item_figures(graded) for graded in card.failed],
        "items_without_verdict": [
            _item_figures(graded) for graded in card.items if graded.outcome == NO_ANSWER
        ],
    }


def _item_figures(graded: GradedItem) -> dict[str, Any]:
    return {
        "id": graded.item.id,
        "outcome": graded.outcome,
        "aim": graded.item.aim,
        "answers": [answer.detail for answer in graded.answers],
    }

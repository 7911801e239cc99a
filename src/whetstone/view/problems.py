"""The problems of an evaluation, or of two side by side, page by page: what a page's browser asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from whetstone.errors import UserError
from whetstone.report.evaluation_index import EvaluationIndex, Reply
from whetstone.report.evaluation_page import outcome, prompt_text, reply_row
from whetstone.report.query import Query, listed

MOST_REPLIES = 16
"""Replies to a problem that are shown of each side."""
FILTERS = ("benchmark", "outcome", "verdict")


class Row(Struct, frozen=True):
    """A problem in the list: of each side how many replies are right, and of how many."""

    benchmark: str
    id: str
    outcome: str
    counts: list[tuple[int, int]]
    verdicts: list[str]

    def share(self, side: int) -> float:
        """The share of right replies of a side, -1 for the last."""
        right, n = self.counts[side]
        return right / n if n else 0.0

    def shown(self) -> dict[str, Any]:
        """As the page's script takes it."""
        sides = [{"right": right, "n": n} for right, n in self.counts]
        return {"benchmark": self.benchmark, "id": self.id, "outcome": self.outcome, "sides": sides}


SORTS: dict[str, Callable[[Row], Any]] = {
    "as asked": lambda row: 0,
    "id": lambda row: row.id,
    "least right": lambda row: row.share(-1),
    "most right": lambda row: -row.share(-1),
    "most gained": lambda row: row.share(0) - row.share(-1),
    "most lost": lambda row: row.share(-1) - row.share(0),
}


def problem_page(name: str, sides: Sequence[EvaluationIndex], query: Query) -> dict[str, Any]:
    """``rows`` of the page, how many were ``found``, ``of`` how many."""
    everything = found = _rows(name, sides)
    if query.text:
        holding = set[str]().union(*(side.holding(query.text) for side in sides))
        found = [row for row in found if row.id in holding]
    for key, value in query.filters.items():
        found = [row for row in found if value in _values(row)[key]]
    ordered = sorted(found, key=SORTS[query.sort or "as asked"])
    rows = ordered[query.start : query.start + query.count]
    return {"rows": [row.shown() for row in rows], "found": len(found), "of": len(everything)}


def problem_values(name: str, sides: Sequence[EvaluationIndex]) -> dict[str, Any]:
    """By filter: its values, see ``query.listed``."""
    rows = [_values(row) for row in _rows(name, sides)]
    return {key: listed(Counter(value for row in rows for value in row[key])) for key in FILTERS}


def one_problem(name: str, sides: Sequence[EvaluationIndex], problem: str) -> dict[str, Any]:
    """A problem with its prompt and replies. Raises UserError for one that no side has."""
    row = next((row for row in _rows(name, sides) if row.id == problem), None)
    if row is None:
        raise UserError(f"there is no problem {problem[:200]!r} here")
    shown = row.shown()
    prompt = next((kept for side in sides if (kept := side.prompt(problem))), None)
    for side, its in zip(sides, shown["sides"], strict=True):
        its["replies"] = [reply_row(sample) for sample in side.replies(problem, MOST_REPLIES)]
    return {**shown, "prompt": prompt_text(prompt)}


def _rows(name: str, sides: Sequence[EvaluationIndex]) -> list[Row]:
    """The problems that all sides have, in the order of the first."""
    first, *others = (side.problems() for side in sides)
    return [
        _row(name, problem, [replies, *(other[problem] for other in others)])
        for problem, replies in first.items()
        if all(problem in other for other in others)
    ]


def _row(name: str, problem: str, sides: Sequence[Sequence[Reply]]) -> Row:
    counts = [(sum(reply.accepted for reply in replies), len(replies)) for replies in sides]
    verdicts = sorted({reply.verdict for replies in sides for reply in replies})
    return Row(name, problem, outcome(counts), counts, verdicts)


def _values(row: Row) -> dict[str, Sequence[str]]:
    return {"benchmark": [row.benchmark], "outcome": [row.outcome], "verdict": row.verdicts}

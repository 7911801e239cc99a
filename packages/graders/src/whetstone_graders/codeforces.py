"""The Codeforces rating of a participant who solved the same problems as an evaluated model.

The rule is CodeElo's (Quan et al. 2025, arXiv 2501.01257), which DeepCoder reports too. In each contest the
model takes part with its replies as submissions, in their order, until one is accepted. Its points place it
among those who were rated in the contest; its rating there is the one for which Elo's model expects that
place: 1 + sum over participants i of 1 / (1 + 10 ** ((x - r_i) / 400)) = place. The rating is the mean
over contests.

There are no requests to Codeforces: standings are read from a file of saved replies of its API. It has one
JSON object for each contest, a line each: ``standings`` (the result of contest.standings), ``ratings`` (that
of contest.ratingChanges) and ``ids``, which maps problems of the contest, such as ``2024A``, to the ids of
the problems that were evaluated.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from pathlib import Path

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.evaluate.results import SampleResult

FEWEST_RATED = 201
"""A contest with fewer rated participants is not used."""

_FAILED_SUBMISSION_POINTS = 50.0
_FAILED_SUBMISSION_PENALTY = 10.0


class _Member(Struct):
    handle: str


class _Party(Struct):
    members: list[_Member]


class _Row(Struct):
    party: _Party
    points: float
    penalty: float = 0.0


class _Task(Struct):
    index: str
    contestId: int
    points: float | None = None


class _About(Struct):
    id: int
    name: str


class _Standings(Struct):
    contest: _About
    problems: list[_Task]
    rows: list[_Row]


class _Change(Struct):
    handle: str
    oldRating: int


class Contest(Struct):
    """A line of the standings file, with the needed fields of the API's replies."""

    standings: _Standings
    ratings: list[_Change]
    ids: dict[str, str]


class ContestRating(Struct, frozen=True):
    """The model's place among the rated, counted from 0, and its rating; None with the reason why not."""

    contest: int
    name: str
    solved: int
    evaluated: int
    place: int = 0
    rating: int | None = None
    reason: str = ""


class CodeforcesRating(Struct, frozen=True):
    """The mean rating, the share of ratings below it in per cent (None without a contest), each contest."""

    rating: float | None
    percentile: float | None
    contests: list[ContestRating]


def read_standings(path: str | Path) -> list[Contest]:
    """Read a standings file. Raises UserError naming line and field."""
    contests: list[Contest] = []
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; give a file of saved standings (docs/evaluation.md)"
        ) from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                contests.append(msgspec.json.decode(line, type=Contest))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise UserError(
                    f"{path}, line {number}: {error}; "
                    "a line holds `standings`, `ratings` and `ids` of one contest"
                ) from None
    if not contests:
        raise UserError(f"{path}: contains no contest")
    return contests


def read_ratings(path: str | Path) -> list[float]:
    """Ratings to compare with, sorted: a JSON list, or an object of rating to count. Raises UserError."""
    try:
        value = json.loads(Path(path).read_bytes())
        if isinstance(value, dict):
            counted = msgspec.convert(value, dict[str, int])
            return sorted(float(rating) for rating, count in counted.items() for _ in range(count))
        return sorted(msgspec.convert(value, list[float]))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: no ratings: {error}; give a JSON list of ratings, or an object of rating to count"
        ) from None


def submissions(samples: Iterable[SampleResult]) -> dict[str, list[bool]]:
    """Of each problem, which replies were accepted, in the order of their index."""
    found: dict[str, dict[int, bool]] = {}
    for sample in samples:
        found.setdefault(sample.problem_id, {})[sample.index] = sample.solved
    return {name: [replies[index] for index in sorted(replies)] for name, replies in found.items()}


def codeforces_rating(
    tried: Mapping[str, Sequence[bool]], contests: Sequence[Contest], ratings: Sequence[float] | None = None
) -> CodeforcesRating:
    """Rate what ``submissions`` gives. ``ratings``, sorted, are the population of the percentile. By
    default it is the rated participants of the contests, each once, with the rating of their last contest.
    """
    found = [_rate(contest, tried) for contest in contests]
    rated = [one.rating for one in found if one.rating is not None]
    if not rated:
        return CodeforcesRating(None, None, found)
    rating = fsum(rated) / len(rated)
    public = sorted(_newest(contests).values()) if ratings is None else ratings
    share = 100.0 * bisect_left(public, rating) / len(public) if public else None
    return CodeforcesRating(rating, share, found)


def rating_of_place(place: int, participants: Sequence[float]) -> int:
    """The largest whole rating whose expected place is ``place`` or worse; from 0 to 100 above the best.

    ``place`` counts those who are not worse. The expected place falls with the rating, so halving finds it.
    """
    low, high = 0, int(max(participants, default=0)) + 100
    while high - low > 1:
        middle = (low + high) // 2
        if expected_place(middle, participants) < place:
            high = middle
        else:
            low = middle
    return low


def expected_place(rating: float, participants: Sequence[float]) -> float:
    """1 and, for each participant, the probability of losing to him."""
    return 1.0 + fsum(1.0 / (1.0 + 10.0 ** ((rating - other) / 400.0)) for other in participants)


def _rate(contest: Contest, tried: Mapping[str, Sequence[bool]]) -> ContestRating:
    about = contest.standings.contest
    tasks = [
        (task, contest.ids.get(f"{task.contestId}{task.index}", "")) for task in contest.standings.problems
    ]
    ours = [(task, tried[name]) for task, name in tasks if name in tried]
    solved = sum(any(replies) for _, replies in ours)
    empty = ContestRating(about.id, about.name, solved, len(ours))
    if not ours:
        return msgspec.structs.replace(empty, reason="none of its problems was evaluated")
    old = {change.handle: float(change.oldRating) for change in contest.ratings}
    rows = [row for row in contest.standings.rows if _handle(row) in old]
    if len(rows) < FEWEST_RATED:
        return msgspec.structs.replace(
            empty, reason=f"{len(rows)} rated participants in the file, fewer than {FEWEST_RATED}"
        )
    points, penalty = _result(ours)
    place = sum(row.points > points or (row.points == points and row.penalty <= penalty) for row in rows)
    rating = rating_of_place(place, [old[_handle(row)] for row in rows])
    return msgspec.structs.replace(empty, place=place, rating=rating)


def _result(ours: Iterable[tuple[_Task, Sequence[bool]]]) -> tuple[float, float]:
    """Points and penalty: failed submissions before the accepted one cost points, or time where none are."""
    points = penalty = 0.0
    for task, replies in ours:
        if not any(replies):
            continue
        failed = list(replies).index(True)
        if task.points is None:
            points, penalty = points + 1.0, penalty + _FAILED_SUBMISSION_PENALTY * failed
        else:
            points += max(0.0, task.points - _FAILED_SUBMISSION_POINTS * failed)
    return points, penalty


def _handle(row: _Row) -> str:
    return row.party.members[0].handle if row.party.members else ""


def _newest(contests: Sequence[Contest]) -> dict[str, float]:
    by_number = sorted(contests, key=lambda contest: contest.standings.contest.id)
    return {change.handle: float(change.oldRating) for contest in by_number for change in contest.ratings}

"""The actions ``whetstone eval rejudge`` and ``whetstone eval rating``."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whetstone.cli.flags import add_command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.evaluate.plan_file import Harness


class Rejudging(Struct, frozen=True, kw_only=True):
    """An evaluation to judge again, and the rules."""

    folder: Annotated[str, Flag("the --out folder of a finished evaluation", "DIR", positional=True)]
    harness: Harness = "ours"
    data: Annotated[
        tuple[str, ...],
        Flag("where a benchmark's file is now, if it was moved; repeatable", "NAME=FILE", repeat=True),
    ] = ()
    out: Annotated[str | None, Flag("where to store the result (default: DIR-HARNESS)", "DIR")] = None
    restart: Annotated[bool, Flag("delete what --out holds instead of resuming")] = False
    workers: Annotated[int, Meta(ge=0), Flag("workers of the judge; 0 (default): one for each core", "N")] = 0


class Rating(Struct, frozen=True, kw_only=True):
    """An evaluation, and the contests of its problems."""

    folder: Annotated[str, Flag("the folder of one evaluation, with samples.jsonl", "DIR", positional=True)]
    standings: Annotated[str, Flag("saved standings, one contest a line", "FILE")]
    ratings: Annotated[
        str | None, Flag("ratings for the percentile (default: those in the standings)", "FILE")
    ] = None


def add_rejudge(actions: Any) -> None:
    """Declare ``whetstone eval rejudge``."""
    add_command(
        actions,
        "rejudge",
        rejudge_replies,
        help="judge stored replies again by other rules, and list what differs",
        description="Nothing is generated: the replies in samples.jsonl are judged again. Prints the result, "
        "and every reply that only one set of rules accepts; differences.jsonl holds them all.",
    )


def add_rating(actions: Any) -> None:
    """Declare ``whetstone eval rating``."""
    add_command(
        actions,
        "rating",
        rate,
        help="the Codeforces rating and percentile that correspond to an evaluation",
        description="Rank the evaluated model among the rated participants of past contests, by "
        "CodeElo's rule, from a file of saved standings. docs/evaluation.md describes the file.",
    )


def rejudge_replies(of: Rejudging) -> int:
    """Judge stored replies again. Raises UserError."""
    from whetstone_graders.rejudge import rejudge

    data: dict[str, str] = {}
    for text in of.data:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise UserError(f"--data {text}: give NAME=FILE, NAME being a benchmark of {of.folder}")
        data[name] = path
    rejudge(of.folder, of.harness, data=data, out=of.out, workers=of.workers, restart=of.restart)
    return 0


def rate(of: Rating) -> int:
    """Print the rating. Returns status 1 when no contest could be used."""
    from whetstone.evaluate.folder import read_samples
    from whetstone_graders.codeforces import codeforces_rating, read_ratings, read_standings, submissions

    contests = read_standings(of.standings)
    ratings = read_ratings(of.ratings) if of.ratings else None
    result = codeforces_rating(submissions(read_samples(of.folder)), contests, ratings)
    table = Table("contest", "solved", "place", "rating")
    for one in result.contests:
        name = escape(f"{one.contest} {one.name}")
        if one.rating is None:
            table.add_row(name, f"{one.solved} of {one.evaluated}", "", escape(one.reason))
        else:
            table.add_row(name, f"{one.solved} of {one.evaluated}", str(one.place + 1), str(one.rating))
    console = Console()
    console.print(table)
    used = sum(one.rating is not None for one in result.contests)
    if result.rating is None:
        console.print("no rating: none of the contests could be used")
        return 1
    share = "" if result.percentile is None else f", above {result.percentile:.1f}% of the ratings"
    console.print(
        f"rating {result.rating:.0f}{share} ({used} of {len(result.contests)} contests)", highlight=False
    )
    return 0

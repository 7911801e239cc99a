"""``whetstone eval rating``: the Codeforces rating that an evaluation amounts to."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def add_rating_parser(actions: Any) -> None:
    """Declare the action."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "rating",
        help="the Codeforces rating and percentile that an evaluation amounts to",
        description="Place the evaluated model among the rated participants of past contests, by "
        "CodeElo's rule, from a file of saved standings: docs/evaluation.md says how to make one.",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder of one evaluation: samples.jsonl is in it")
    parser.add_argument(
        "--standings", required=True, metavar="FILE", help="saved standings, a contest a line"
    )
    parser.add_argument(
        "--ratings", metavar="FILE", help="ratings the percentile is of (default: those in the standings)"
    )


def run_rating(args: argparse.Namespace) -> int:
    """Run the action; status 1 when no contest could be used."""
    from whetstone.evaluate.codeforces import codeforces_rating, read_ratings, read_standings, submissions
    from whetstone.evaluate.folder import read_samples

    contests = read_standings(args.standings)
    ratings = read_ratings(args.ratings) if args.ratings else None
    found = codeforces_rating(submissions(read_samples(args.folder)), contests, ratings)
    table = Table("contest", "solved", "place", "rating")
    for one in found.contests:
        name = escape(f"{one.contest} {one.name}")
        if one.rating is None:
            table.add_row(name, f"{one.solved} of {one.evaluated}", "", escape(one.reason))
        else:
            table.add_row(name, f"{one.solved} of {one.evaluated}", str(one.place + 1), str(one.rating))
    console = Console()
    console.print(table)
    used = sum(one.rating is not None for one in found.contests)
    if found.rating is None:
        console.print("no rating: none of the contests could be used")
        return 1
    share = "" if found.percentile is None else f", above {found.percentile:.1f}% of the ratings"
    console.print(
        f"rating {found.rating:.0f}{share} ({used} of {len(found.contests)} contests)", highlight=False
    )
    return 0

"""What the browser of a page asks of what it shows: a filter, a search, an order, a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from whetstone.errors import UserError

PAGE, MOST_ROWS = 100, 1000
MOST_VALUES = 1000
"""Values of a filter that are listed: where there are more, a search for its text finds one."""


class Query(Struct, frozen=True):
    """Which things: ``filters`` by name, each with the value as text; ``text`` stands in one of their texts,
    in letters of either case. ``sort`` is the name of an order, empty for the first one.
    """

    filters: dict[str, str] = {}
    text: str = ""
    sort: str = ""
    start: int = 0
    count: int = PAGE


def query_of(given: Mapping[str, str], filters: Iterable[str], sorts: Iterable[str]) -> Query:
    """The query that a page sends as words. Raises UserError for an order that there is not, or no number."""
    orders = list(sorts)
    sort = given.get("sort") or orders[0]
    if sort not in orders:
        raise UserError(f"there is no order {sort[:50]!r}; expected one of {', '.join(orders)}")
    chosen = {name: given[name] for name in filters if given.get(name)}
    start, count = whole(given, "start", 0), whole(given, "count", PAGE)
    return Query(chosen, given.get("text", ""), sort, start, min(count, MOST_ROWS))


def whole(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A whole number of at least 0 that a page sends. Raises UserError."""
    value = given.get(name, "" if default is None else str(default))
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise UserError(f"{name}={value[:50]!r}: expected a whole number")
    return int(value)


def listed(counts: Mapping[Any, int]) -> dict[str, Any]:
    """The ``values`` of a filter with their counts, in order, and how many ``more`` there are."""
    return {"values": sorted(counts.items())[:MOST_VALUES], "more": max(0, len(counts) - MOST_VALUES)}

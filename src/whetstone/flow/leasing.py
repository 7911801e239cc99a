"""Who is to sample what: prompts that somebody dropped first, new ones as far as they can be used."""

from __future__ import annotations

from collections.abc import Iterator

from whetstone.flow.books import Books
from whetstone.flow.composing import admitted, missing, shares_of, wants_refill
from whetstone.flow.events import Drawn, Event, Leased
from whetstone.flow.members import Member
from whetstone.flow.refusal import FlowRefusal
from whetstone.flow.rules import Rules
from whetstone.flow.source import PromptSource


def lease_more(
    books: Books, rules: Rules, source: PromptSource[str], replica: str, member: Member, rooms: int
) -> Iterator[Event]:
    """What is to happen so that a replica has as much to do as it has room for; each before the next is made.

    ``rooms``: of all replicas together. Raises FlowRefusal for a room that is too little for its share of a
    round.
    """
    served = member.versions
    if member.room <= 0 or any(not m.ready or served[name] > m.newest for name, m in books.models.items()):
        return
    lag = {name: model.next_use - served[name] for name, model in books.models.items()}
    if max(lag.values()) > rules.staleness:
        return
    if rules.staleness:
        yield from _prompts(books, rules, source, replica, member, rooms)
    elif set(lag.values()) == {0}:
        yield from _share(books, rules, source, replica, member)


def part_of(rules: Rules, room: int, rooms: int) -> int:
    """How many prompts a replica may hold that has ``room`` of all ``rooms``.

    Where all rooms together hold more than may be under way, each replica gets its part, or the first ones
    would have prompts in a queue while the engines of the last ones stand still.
    """
    most = (rules.staleness + 1) * rules.prompts_per_step
    return min(room, max(1, most * room // max(rooms, 1)))


def _prompts(
    books: Books, rules: Rules, source: PromptSource[str], replica: str, member: Member, rooms: int
) -> Iterator[Event]:
    mine = books.owned.get(replica, set())
    room = member.room - len(mine)
    # Who is late with a prompt is not asked for it twice.
    again = [draw for draw in sorted(books.idle) if mine.isdisjoint(books.wanted[draw].leases)]
    draws = again[: max(room, 0)]
    part = part_of(rules, member.room, rooms) - len(mine)
    fresh = min(room, part, admitted(books, rules, member.versions) + len(draws)) - len(draws)
    if fresh > 0:
        drawn = _draw(books, source, fresh)
        yield drawn
        draws += range(drawn.first, books.drawn)
    if draws:
        yield Leased(replica, draws)


def _share(
    books: Books, rules: Rules, source: PromptSource[str], replica: str, member: Member
) -> Iterator[Event]:
    """A whole share, to a replica that has nothing else to do.

    The last bits of a reply's log-probs depend on the replies beside it. So that a run that was killed
    composes them alike, the prompts of a share are sampled together, by whoever does it.
    """
    if books.round is None or wants_refill(books, rules):
        count = rules.prompts_per_step if books.round is None else missing(books, rules)
        version = next(iter(books.models.values())).next_use
        drawn = _draw(books, source, count)
        draws = range(drawn.first, drawn.first + count)
        yield Drawn(drawn.first, drawn.problems, version, shares_of(draws, rules.shares))
    if replica in books.owned or books.round is None:
        return
    share = next((share for share in books.round.shares if not books.idle.isdisjoint(share)), [])
    if len(share) > member.room:
        raise FlowRefusal(
            "room",
            f"{replica} has room for {member.room} prompts, and a share of a round has {len(share)}: give it "
            "more room, or deal rounds in more shares",
        )
    if share:
        yield Leased(replica, share)


def _draw(books: Books, source: PromptSource[str], count: int) -> Drawn:
    return Drawn(books.drawn, [source.at(draw) for draw in range(books.drawn, books.drawn + count)])

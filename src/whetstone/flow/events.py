"""What happens to the books. Applying an event never fails and decides nothing: that was done before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whetstone.flow.books import Books, Item, Lease, Offer, Record, Round, Wanted
from whetstone.flow.facts import Facts, Place


class Drawn(Struct, frozen=True, tag=True, array_like=True):
    """Prompts were drawn, from ``first`` on: the problem of each. ``shares``: they are a round's."""

    first: int
    problems: list[str]
    version: int = 0
    shares: list[list[int]] = []


class Leased(Struct, frozen=True, tag=True, array_like=True):
    """A replica is to sample these draws; the serial numbers of the leases follow the last one."""

    replica: str
    draws: list[int]


class Freed(Struct, frozen=True, tag=True, array_like=True):
    """Leases end without a group: the replica is ``dead``, gave them back (``returned``), ``failed``, …"""

    serials: list[int]
    why: str
    blamed: bool


class Late(Struct, frozen=True, tag=True, array_like=True):
    """Leases last too long: others may sample the same, and the first to finish counts."""

    serials: list[int]


class Finished(Struct, frozen=True, tag=True, array_like=True):
    """A group for every model, each with its facts and why it is not trained on (empty: it may be)."""

    serial: int
    draw: int
    groups: dict[str, tuple[Facts, str]]


class Lost(Struct, frozen=True, tag=True, array_like=True):
    """A wanted draw that there will be no group of."""

    draw: int
    reason: str


class Composed(Struct, frozen=True, tag=True, array_like=True):
    """The batch for ``version``: the draws it trains on, and groups that from now on nobody can use."""

    model: str
    version: int
    kept: list[int]
    dropped: dict[str, list[int]]


class Handed(Struct, frozen=True, tag=True, array_like=True):
    """A batch was handed out."""

    model: str
    version: int


class Published(Struct, frozen=True, tag=True, array_like=True):
    """A trainer has made these weights, or has gone back to them."""

    model: str
    offer: Offer


class Reached(Struct, frozen=True, tag=True, array_like=True):
    """A trainer is at a version, after a step or because it went back to a checkpoint."""

    model: str
    version: int


class Saved(Struct, frozen=True, tag=True, array_like=True):
    """A checkpoint holds a version; batches before it are forgotten when ``keep`` later ones do, too."""

    model: str
    version: int
    keep: int


class Adopted(Struct, frozen=True, tag=True, array_like=True):
    """An empty flow serves a trainer that has come far without it, and draws again what no batch used."""

    model: str
    version: int
    drawn: int
    wanted: list[tuple[int, str]]
    lost: int


class Noted(Struct, frozen=True, tag=True, array_like=True):
    """Something to count."""

    what: str


Event = (
    Drawn
    | Leased
    | Freed
    | Late
    | Finished
    | Lost
    | Composed
    | Handed
    | Published
    | Reached
    | Saved
    | Adopted
    | Noted
)


def apply(books: Books, event: Event, places: Sequence[Place] = ()) -> None:
    """Change the books by an event. ``places``: where the groups of ``Finished`` lie, in their order."""
    if isinstance(event, Finished):
        _finished(books, event, places)
    else:
        _APPLY[type(event)](books, event)


def _drawn(books: Books, event: Drawn) -> None:
    draws = range(event.first, event.first + len(event.problems))
    for draw, problem in zip(draws, event.problems, strict=True):
        books.wanted[draw] = Wanted(problem)
        books.idle.add(draw)
    books.drawn = draws.stop
    books.count("drawn", len(draws))
    if event.shares:
        before = books.round
        books.round = Round(event.version, event.shares, 1 if before is None else before.rounds + 1)


def _leased(books: Books, event: Leased) -> None:
    for draw in event.draws:
        books.serial += 1
        books.leases[books.serial] = Lease(draw, event.replica)
        books.owned.setdefault(event.replica, set()).add(books.serial)
        # A share is sampled whole, also by the second who does it: what is finished of it has no entry.
        if draw in books.wanted:
            books.wanted[draw].leases.append(books.serial)
            books.idle.discard(draw)
    books.count("leased", len(event.draws))


def _freed(books: Books, event: Freed) -> None:
    for serial in event.serials:
        lease = books.leases.get(serial)
        wanted = None if lease is None else books.wanted.get(lease.draw)
        if wanted is not None:
            # Who was late has been blamed for it.
            wanted.failures += event.blamed and serial not in books.late
            books.count(f"freed/{event.why}")
        books.end_lease(serial)


def _late(books: Books, event: Late) -> None:
    for serial in event.serials:
        lease = books.leases.get(serial)
        wanted = None if lease is None else books.wanted.get(lease.draw)
        if lease is not None and wanted is not None and serial not in books.late:
            books.late.add(serial)
            wanted.failures += 1
            books.count("freed/late")
            books.look(lease.draw, wanted)


def _finished(books: Books, event: Finished, places: Sequence[Place]) -> None:
    books.end_lease(event.serial)
    books.settle(event.draw)
    for (name, (facts, reason)), place in zip(event.groups.items(), places, strict=True):
        model, item = books.models[name], Item(event.draw, facts, place, reason)
        if reason:
            model.aside.append(item)
        else:
            model.buffer[event.draw] = item
    books.count("finished")


def _lost(books: Books, event: Lost) -> None:
    books.settle(event.draw)
    for model in books.models.values():
        model.lost[event.reason] = model.lost.get(event.reason, 0) + 1
    books.count(f"lost/{event.reason}")


def _composed(books: Books, event: Composed) -> None:
    model = books.models[event.model]
    kept = [model.buffer.pop(draw) for draw in event.kept]
    for reason, draws in event.dropped.items():
        model.aside += [replace(model.buffer.pop(draw), reason=reason) for draw in draws]
    items = sorted(kept + model.aside, key=lambda item: item.draw)
    unused = sorted([*books.wanted, *model.buffer])
    model.batches[event.version] = Record(items, model.lost, books.drawn, unused)
    model.aside, model.lost, model.next_use = [], {}, event.version + 1
    for item in items:
        model.audit.add(item.facts, item.reason)
    if all(each.next_use > event.version for each in books.models.values()):
        books.round = None


def _handed(books: Books, event: Handed) -> None:
    record = books.models[event.model].batches[event.version]
    kept = sum(not item.reason for item in record.items)
    books.count("groups/replayed" if record.handed else "groups/fresh", kept)
    record.handed += 1


def _published(books: Books, event: Published) -> None:
    model = books.models[event.model]
    model.offer, model.version, model.ready = event.offer, event.offer.version, True
    model.newest = max(model.newest, event.offer.version)


def _reached(books: Books, event: Reached) -> None:
    model = books.models[event.model]
    model.version, model.ready = event.version, True
    model.newest = max(model.newest, event.version)


def _saved(books: Books, event: Saved) -> None:
    model = books.models[event.model]
    model.saves = [*(save for save in model.saves if save < event.version), event.version][-event.keep :]
    if len(model.saves) == event.keep:
        for version in [version for version in model.batches if version < model.saves[0]]:
            del model.batches[version]


def _adopted(books: Books, event: Adopted) -> None:
    model = books.models[event.model]
    model.version = model.newest = model.next_use = event.version
    model.ready = True
    books.drawn = max(books.drawn, event.drawn)
    for draw, problem in event.wanted:
        books.wanted[draw] = Wanted(problem)
        books.idle.add(draw)
    if event.lost:
        model.lost["log_lost"] = event.lost
        books.count("lost/log_lost", event.lost)


def _noted(books: Books, event: Noted) -> None:
    books.count(event.what)


_APPLY: dict[type, Callable[[Books, Any], None]] = {
    Drawn: _drawn,
    Leased: _leased,
    Freed: _freed,
    Late: _late,
    Lost: _lost,
    Composed: _composed,
    Handed: _handed,
    Published: _published,
    Reached: _reached,
    Saved: _saved,
    Adopted: _adopted,
    Noted: _noted,
}

"""What the dataflow has to remember: who samples which prompt, what is finished, what each batch was made of.

Plain data without a clock, so that it can be written down and read back. It changes by events only
(``events.py``): whoever has them all, in their order, has the same books.
"""

from __future__ import annotations

from msgspec import Struct, field

from whetstone.flow.audit import Audit
from whetstone.flow.facts import Facts, Place
from whetstone.weights.offer import Offer


class Item(Struct, frozen=True, array_like=True):
    """A finished group of one model. ``reason``: why it is not trained on; empty where it is."""

    draw: int
    facts: Facts
    place: Place
    reason: str = ""


class Lease(Struct, frozen=True, array_like=True):
    """A prompt that a replica is to sample."""

    draw: int
    replica: str


class Wanted(Struct, array_like=True):
    """A drawn prompt that is not finished yet: its live leases, and how often it was taken back."""

    problem: str
    leases: list[int] = field(default_factory=list[int])
    failures: int = 0


class Record(Struct):
    """What a batch was made of: every group that was finished for it, in the order of draws.

    lost: prompts that never came to a group, by reason. drawn: how many prompts were drawn until then.
    unused: the draws among them that no batch has used. handed: how often it was handed out.
    """

    items: list[Item]
    lost: dict[str, int]
    drawn: int
    unused: list[int]
    handed: int = 0


class ModelBooks(Struct):
    """The books of one model.

    buffer: finished groups that a batch may use, by draw. aside: those that none uses, until a batch tells of
    them. lost: prompts without a group, likewise. batches: by the version that trains on them. next_use: the
    first version that has none yet. ready: its trainer has been there. version: the trainer's. newest: the
    highest that it ever had. saves: the versions of its checkpoints, those that count.
    """

    buffer: dict[int, Item] = field(default_factory=dict[int, Item])
    aside: list[Item] = field(default_factory=list[Item])
    lost: dict[str, int] = field(default_factory=dict[str, int])
    batches: dict[int, Record] = field(default_factory=dict[int, Record])
    next_use: int = 0
    ready: bool = False
    version: int = 0
    newest: int = 0
    offer: Offer | None = None
    saves: list[int] = field(default_factory=list[int])
    audit: Audit = field(default_factory=Audit)


class Round(Struct):
    """Prompts that are sampled together for the batch of ``version``, each share by one replica."""

    version: int
    shares: list[list[int]]
    rounds: int = 1


class Books(Struct):
    """Everything.

    drawn: how many prompts were drawn. serial: the number of the last lease. wanted: draws that are not
    finished. idle: those of them that no replica samples in time. leases: by their numbers; late: those that
    last too long; owned: by replica.
    """

    models: dict[str, ModelBooks]
    drawn: int = 0
    serial: int = 0
    wanted: dict[int, Wanted] = field(default_factory=dict[int, Wanted])
    idle: set[int] = field(default_factory=set[int])
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    late: set[int] = field(default_factory=set[int])
    owned: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    round: Round | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def blank(self) -> bool:
        """Whether nothing has happened yet."""
        return not (self.serial or self.drawn or any(model.ready for model in self.models.values()))

    def count(self, what: str, by: int = 1) -> None:
        """Add to a count."""
        if by:
            self.counts[what] = self.counts.get(what, 0) + by

    def end_lease(self, serial: int) -> None:
        """Forget a lease, if there is one."""
        lease = self.leases.pop(serial, None)
        if lease is None:
            return
        self.late.discard(serial)
        mine = self.owned[lease.replica]
        mine.discard(serial)
        if not mine:
            del self.owned[lease.replica]
        wanted = self.wanted.get(lease.draw)
        if wanted is not None and serial in wanted.leases:
            wanted.leases.remove(serial)
            self.look(lease.draw, wanted)

    def look(self, draw: int, wanted: Wanted) -> None:
        """See whether a wanted draw is idle."""
        if all(serial in self.late for serial in wanted.leases):
            self.idle.add(draw)

    def settle(self, draw: int) -> None:
        """A draw is wanted no more; when its share is whole, nobody samples any of it any more."""
        for serial in self.wanted.pop(draw).leases:
            self.end_lease(serial)
        self.idle.discard(draw)
        if self.round is None:
            return
        for share in self.round.shares:
            if draw in share and not any(each in self.wanted for each in share):
                for serial in [serial for serial, lease in self.leases.items() if lease.draw in share]:
                    self.end_lease(serial)

    def files(self) -> set[int]:
        """The files of the log in which a group lies that may still be asked for."""
        return {
            item.place.file
            for model in self.models.values()
            for items in (
                model.buffer.values(),
                model.aside,
                *(record.items for record in model.batches.values()),
            )
            for item in items
        }


def new_books(models: tuple[str, ...]) -> Books:
    """Books in which nothing has happened yet."""
    return Books({name: ModelBooks() for name in models})

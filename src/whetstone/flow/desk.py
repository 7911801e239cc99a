"""The flow itself: prompts are leased, groups come in, batches go out. No clock, no sockets, no waiting.

Every call says what time it is. What it decides becomes an event, which is written down before it counts:
where that fails, nothing has happened. Every call can be repeated: the second one finds done what it asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from whetstone.flow.books import Books, ModelBooks, Offer, Record, new_books
from whetstone.flow.composing import ABANDONED, STALE, admitted, from_buffer, from_round
from whetstone.flow.events import (
    Adopted,
    Composed,
    Event,
    Finished,
    Freed,
    Handed,
    Late,
    Lost,
    Noted,
    Published,
    Reached,
    Saved,
    apply,
)
from whetstone.flow.facts import Facts, Place
from whetstone.flow.filters import reason_of
from whetstone.flow.learning_signal import no_signal
from whetstone.flow.leasing import lease_more, part_of
from whetstone.flow.members import Member
from whetstone.flow.refusal import FlowRefusal
from whetstone.flow.rules import Rules
from whetstone.flow.source import PromptSource


class Log(Protocol):
    """Where events are written down."""

    def append(self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False) -> list[Place]:
        """Write an event and the groups it brings, whole or not at all; where the groups lie. ``synced``: it
        is on the disk when this returns. Raises UserError for a full disk."""
        ...

    def read(self, place: Place) -> bytes:
        """The bytes of a group."""
        ...

    def tidy(self, books: Books) -> None:
        """Let go of what is not needed to restore ``books``, if that is much."""
        ...


class Grant(Struct, frozen=True, array_like=True):
    """A lease as a replica gets it: sample the problem of this draw."""

    serial: int
    draw: int
    problem: str


class Taken(Struct, frozen=True):
    """What a replica is told: new leases, leases that it holds and that are none, the weights to serve."""

    leases: list[Grant]
    let_go: list[int]
    offers: dict[str, Offer]


class Delivery(Struct, frozen=True):
    """A finished prompt: for each model the facts of its group, and the group."""

    serial: int
    draw: int
    groups: dict[str, tuple[Facts, bytes]]


class Desk:
    """See the module's text. ``source`` has the ids of the problems, in the order in which they are drawn."""

    def __init__(
        self, rules: Rules, source: PromptSource[str], log: Log, now: float, books: Books | None = None
    ) -> None:
        """``books``: what the log says, of a flow that goes on; its leases begin anew."""
        rules.check()
        self.rules, self.source, self.log = rules, source, log
        self.books = books or new_books(rules.models)
        self.members: dict[str, Member] = {name: Member(heard=now) for name in self.books.owned}
        self._rooms = 0
        self.granted = deque((serial, now) for serial in sorted(self.books.leases))

    def do(self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False) -> None:
        """Write an event down, then have it happen."""
        places = self.log.append(event, payloads, synced=synced)
        apply(self.books, event, places)
        self.log.tidy(self.books)

    # -- replicas

    def take(
        self,
        replica: str,
        *,
        holding: Sequence[int],
        room: int,
        versions: Mapping[str, int],
        now: float,
        load: Mapping[str, float] | None = None,
    ) -> Taken:
        """A replica says what it holds and for how many prompts it has room in all (0: it drains).

        It is given what it misses of its leases, and new ones up to its room. Raises FlowRefusal for models
        that are not those of this run, and for a room that its share of a round can never fit in.
        """
        self._check_models(versions)
        member = self.members.setdefault(replica, Member(heard=now))
        self._rooms += max(room, 0) - max(member.room, 0)
        member.hear(now, room, dict(versions), dict(load or {}))
        before = self.books.serial
        for event in lease_more(self.books, self.rules, self.source, replica, member, self._rooms):
            self.do(event)
        self.granted.extend((serial, now) for serial in range(before + 1, self.books.serial + 1))
        books = self.books
        while self.granted and self.granted[0][0] not in books.leases:
            self.granted.popleft()
        mine = books.owned.get(replica, set())
        held = set(holding)
        wanted = [(serial, books.leases[serial].draw) for serial in sorted(mine - held)]
        return Taken(
            [Grant(serial, draw, self.problem(draw)) for serial, draw in wanted],
            sorted(held - mine),
            {name: model.offer for name, model in books.models.items() if model.offer is not None},
        )

    def problem(self, draw: int) -> str:
        """The id of a draw's problem."""
        wanted = self.books.wanted.get(draw)
        return self.source.at(draw) if wanted is None else wanted.problem

    def deliver(self, replica: str, delivery: Delivery, now: float) -> str:
        """Take in a finished prompt: ``taken``; or ``duplicate``, ``revoked`` and nothing happens.

        Raises FlowRefusal for one that cannot be right: other models, another problem, weights that were
        never published, or others than those of the round.
        """
        books = self.books
        if replica in self.members:
            self.members[replica].heard = now
        lease = books.leases.get(delivery.serial)
        if delivery.draw < books.drawn and delivery.draw not in books.wanted:
            if lease is not None:
                self.do(Freed([delivery.serial], "duplicate", False))
            self.do(Noted("duplicate"))
            return "duplicate"
        if lease is None or lease.replica != replica or lease.draw != delivery.draw:
            self.do(Noted("revoked"))
            return "revoked"
        if why := self._fault(delivery):
            self.do(Freed([delivery.serial], "refused", True))
            self._abandon()
            raise FlowRefusal("group", f"draw {delivery.draw} from {replica}: {why}")
        groups = {name: (facts, self._reason(name, facts)) for name, (facts, _) in delivery.groups.items()}
        payloads = [payload for _, payload in delivery.groups.values()]
        self.do(Finished(delivery.serial, delivery.draw, groups), payloads)
        return "taken"

    def give_back(self, replica: str, serials: Sequence[int], why: str, *, blamed: bool) -> None:
        """Leases end without a group. ``blamed``: it may be the prompt's fault."""
        mine = self.books.owned.get(replica, set())
        if ended := sorted(mine.intersection(serials)):
            self.do(Freed(ended, why, blamed))
            self._abandon()

    def leave(self, replica: str) -> None:
        """A replica goes: what it holds is leased to others, and nobody waits for it."""
        self.give_back(replica, sorted(self.books.owned.get(replica, set())), "returned", blamed=False)
        self._forget(replica)

    def has_more(self) -> bool:
        """Whether some replica could be given something now."""
        books = self.books
        if books.idle or self.rules.staleness == 0:
            return True
        return admitted(books, self.rules, {name: model.next_use for name, model in books.models.items()}) > 0

    def may_take(self, replica: str) -> bool:
        """Whether a replica holds less than it may."""
        member = self.members.get(replica)
        held = len(self.books.owned.get(replica, ()))
        if member is None or member.room <= 0:
            return False
        return held < (part_of(self.rules, member.room, self._rooms) if self.rules.staleness else 1)

    def _forget(self, replica: str) -> None:
        if (member := self.members.pop(replica, None)) is not None:
            self._rooms -= max(member.room, 0)

    def expire(self, now: float) -> None:
        """Take back the leases of replicas that are silent, and have others sample what is late."""
        for name, member in list(self.members.items()):
            if now - member.heard > self.rules.silence_s:
                if mine := sorted(self.books.owned.get(name, set())):
                    self.do(Freed(mine, "dead", True))
                self._forget(name)
        late: list[int] = []
        while self.granted and now - self.granted[0][1] > self.rules.lease_s:
            late.append(self.granted.popleft()[0])
        if late := [serial for serial in late if serial in self.books.leases]:
            self.do(Late(late))
        self._abandon()

    # -- trainers

    def next_batch(self, name: str, version: int) -> Record | None:
        """What the batch for ``version`` is made of; None while there is none yet.

        A batch stays what it was: whoever asks again is given the same. Raises FlowRefusal for a version that
        the flow has forgotten, or that comes before its turn, and when prompts bring no group to train on.
        """
        model = self._model(name)
        if version > model.next_use or (version < model.next_use and version not in model.batches):
            raise FlowRefusal("version", self._out_of_order(name, version))
        if version not in model.batches:
            if version != model.version or not model.ready:
                self.do(Reached(name, version))
            composed = self.composable(name)
            if composed is None:
                if why := no_signal(self.books, self.rules, name):
                    raise FlowRefusal("no_signal", why)
                return None
            # On the disk before anybody trains on it: otherwise a lost log would hand its groups out again.
            self.do(composed, synced=True)
        self.do(Handed(name, version))
        return model.batches[version]

    def composable(self, name: str) -> Composed | None:
        """The next batch of a model, if there is enough for it and the other models have come as far."""
        version = self.books.models[name].next_use
        if any(not other.ready or other.version < version for other in self.books.models.values()):
            return None
        compose = from_buffer if self.rules.staleness else from_round
        return compose(self.books, self.rules, name)

    def published(self, name: str, offer: Offer) -> None:
        """A trainer offers weights. The same offer again changes nothing."""
        model = self._model(name)
        if offer.version > model.next_use:
            raise FlowRefusal("version", self._out_of_order(name, offer.version))
        if offer != model.offer:
            self.do(Published(name, offer))

    def saved(self, name: str, version: int) -> None:
        """A checkpoint holds ``version``: batches that only older ones would need are forgotten."""
        model = self._model(name)
        if version not in model.saves:
            self.do(Saved(name, version, self.rules.keep_saves))

    def resumed(self, name: str, version: int, drawn: int, unused: Sequence[int]) -> None:
        """A trainer begins at ``version``: ``drawn`` prompts were drawn, and no batch had used ``unused``.

        A flow that knows the batches from there on hands them out again. One in which nothing has happened
        takes the place of one that is gone. Raises FlowRefusal for any other.
        """
        model = self._model(name)
        if model.next_use == 0 and not self.books.serial and version > 0:
            one = len(self.books.models) == 1
            wanted = [(draw, self.source.at(draw)) for draw in unused] if one else []
            self.do(Adopted(name, version, drawn, wanted, 0 if one else len(unused)), synced=True)
        elif version != model.next_use and version not in model.batches:
            raise FlowRefusal("version", self._out_of_order(name, version))
        else:
            self.do(Reached(name, version))

    # -- within

    def _model(self, name: str) -> ModelBooks:
        self._check_models([name], all_of_them=False)
        return self.books.models[name]

    def _check_models(self, names: Mapping[str, int] | Sequence[str], *, all_of_them: bool = True) -> None:
        known = self.books.models.keys()
        if set(names) - known or (all_of_them and known - set(names)):
            raise FlowRefusal(
                "models", f"{', '.join(sorted(names))}: this run's models are {', '.join(sorted(known))}"
            )

    def _fault(self, delivery: Delivery) -> str:
        """What cannot be right with a delivery, in words; empty where nothing is."""
        books = self.books
        if delivery.groups.keys() != books.models.keys():
            return f"groups of {', '.join(delivery.groups)}, not of {', '.join(books.models)}"
        problem = books.wanted[delivery.draw].problem
        for name, (facts, _) in delivery.groups.items():
            model = books.models[name]
            if facts.problem != problem:
                return f"it is a group of {facts.problem}, not of {problem}"
            if facts.newest is not None and facts.newest > model.newest:
                return f"tokens of weights {facts.newest}, and {model.newest} are the newest that {name} made"
            due = books.round.version if books.round else None
            if (
                self.rules.staleness == 0
                and facts.oldest is not None
                and {facts.oldest, facts.newest} != {due}
            ):
                return f"tokens of weights {facts.oldest} to {facts.newest}, in a round of weights {due}"
        return ""

    def _reason(self, name: str, facts: Facts) -> str:
        filtered = self.rules.drop_zero_variance and name not in self.rules.unfiltered
        reason = reason_of(facts.rewards, drop_zero_variance=filtered)
        if reason is not None:
            return reason
        behind = 0 if facts.oldest is None else self.books.models[name].next_use - facts.oldest
        return STALE if behind > self.rules.staleness else ""

    def _abandon(self) -> None:
        for draw in sorted(self.books.idle):
            if self.books.wanted[draw].failures >= self.rules.most_failures:
                self.do(Lost(draw, ABANDONED))

    def _out_of_order(self, name: str, version: int) -> str:
        model = self.books.models[name]
        known = [*sorted(model.batches), model.next_use]
        return (
            f"{name} is at version {version}, and the flow has the batches of {known[0]} to {known[-1]}: "
            "begin with a checkpoint of these, or remove the flow's log to have it start where the trainer is"
        )

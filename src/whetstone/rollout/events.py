"""The events that change a flow's state. Applying an event cannot fail and decides nothing; the scheduler has
decided before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whetstone.rollout.group_facts import GroupFacts, LogLocation
from whetstone.rollout.ledger import DUPLICATE, UNUSED
from whetstone.rollout.state import (
    BatchRecord,
    FinishedGroup,
    FlowState,
    Lease,
    Offer,
    PendingPrompt,
    SynchronousRound,
)


class PromptsDrawn(Struct, frozen=True, tag=True, array_like=True):
    """Prompts were drawn, starting at draw ``first``: the problem of each. ``shares``: set for a round."""

    first: int
    problems: list[str]
    version: int = 0
    shares: list[list[int]] = []


class DrawsLeased(Struct, frozen=True, tag=True, array_like=True):
    """A replica leases these draws; the lease numbers continue after the last one. ``versions``: the weights
    that it serves, by model."""

    replica: str
    draws: list[int]
    versions: dict[str, int]


class ProgressReported(Struct, frozen=True, tag=True, array_like=True):
    """What a process has generated for its leases so far, by lease and model: the tokens, and the version of
    weights that no token is older than."""

    reporter: str
    tokens: dict[int, dict[str, int]]
    oldest: dict[int, dict[str, int]]


class LeasesFreed(Struct, frozen=True, tag=True, array_like=True):
    """Leases ended without a group: the replica is ``dead``, gave them back (``returned``), ``failed``, …"""

    serials: list[int]
    reason: str
    count_failure: bool


class LeasesLate(Struct, frozen=True, tag=True, array_like=True):
    """Leases last too long. Other replicas may sample the same draws, and the first to finish counts."""

    serials: list[int]


class GroupFinished(Struct, frozen=True, tag=True, array_like=True):
    """A group for every model, each with its facts and its drop reason (empty: it may be trained on).
    ``reporter``: the process that sampled it."""

    serial: int
    draw: int
    groups: dict[str, tuple[GroupFacts, str]]
    reporter: str = ""


class DrawLost(Struct, frozen=True, tag=True, array_like=True):
    """A pending draw that will give no group."""

    draw: int
    reason: str


class BatchComposed(Struct, frozen=True, tag=True, array_like=True):
    """The batch for ``version``: the draws that it trains on, and groups that no batch can use any more.

    ``oldest``: tokens of older weights carry no loss; None: none is too old.
    """

    model: str
    version: int
    kept: list[int]
    dropped: dict[str, list[int]]
    oldest: int | None = None


class BatchHandedOut(Struct, frozen=True, tag=True, array_like=True):
    """A trainer received a batch."""

    model: str
    version: int


class WeightsPublished(Struct, frozen=True, tag=True, array_like=True):
    """A trainer has published these weights, possibly an earlier version after it resumed."""

    model: str
    offer: Offer


class VersionReached(Struct, frozen=True, tag=True, array_like=True):
    """A trainer is at a version, after a step or because it resumed from a checkpoint."""

    model: str
    version: int


class CheckpointSaved(Struct, frozen=True, tag=True, array_like=True):
    """A checkpoint holds a version. Once ``keep`` checkpoints exist, batches before the oldest are
    deleted."""

    model: str
    version: int
    keep: int


class TrainerAdopted(Struct, frozen=True, tag=True, array_like=True):
    """A new flow serves a trainer that has already made steps. Draws that no batch used are drawn again."""

    model: str
    version: int
    drawn: int
    redrawn: list[tuple[int, str]]
    lost: int


class EventCounted(Struct, frozen=True, tag=True, array_like=True):
    """An event that only changes a counter."""

    name: str


Event = (
    PromptsDrawn
    | DrawsLeased
    | ProgressReported
    | LeasesFreed
    | LeasesLate
    | GroupFinished
    | DrawLost
    | BatchComposed
    | BatchHandedOut
    | WeightsPublished
    | VersionReached
    | CheckpointSaved
    | TrainerAdopted
    | EventCounted
)


def apply(state: FlowState, event: Event, locations: Sequence[LogLocation] = ()) -> None:
    """Apply an event to the state. ``locations``: of the groups of ``GroupFinished``, in order."""
    if isinstance(event, GroupFinished):
        _finished(state, event, locations)
    else:
        _APPLY[type(event)](state, event)


def _drawn(state: FlowState, event: PromptsDrawn) -> None:
    draws = range(event.first, event.first + len(event.problems))
    for draw, problem in zip(draws, event.problems, strict=True):
        state.pending[draw] = PendingPrompt(problem)
        state.unassigned.add(draw)
    state.drawn = draws.stop
    state.count("drawn", len(draws))
    if event.shares:
        before = state.round
        state.round = SynchronousRound(
            event.version, event.shares, 1 if before is None else before.rounds + 1
        )


def _leased(state: FlowState, event: DrawsLeased) -> None:
    for draw in event.draws:
        state.last_serial += 1
        state.leases[state.last_serial] = Lease(draw, event.replica, dict(event.versions))
        state.leases_by_replica.setdefault(event.replica, set()).add(state.last_serial)
        # A share is always leased as a whole, so some of its draws may be finished and not pending.
        if draw in state.pending:
            state.pending[draw].leases.append(state.last_serial)
            state.unassigned.discard(draw)
    state.count("leased", len(event.draws))


def _reported(state: FlowState, event: ProgressReported) -> None:
    for serial in event.tokens.keys() | event.oldest.keys():
        state.report(serial, event.reporter, event.tokens.get(serial, {}), event.oldest.get(serial, {}))


def _freed(state: FlowState, event: LeasesFreed) -> None:
    for serial in event.serials:
        lease = state.leases.get(serial)
        wanted = None if lease is None else state.pending.get(lease.draw)
        if wanted is not None:
            # A late lease was already counted as a failure.
            wanted.failures += event.count_failure and serial not in state.late
            state.count(f"freed/{event.reason}")
        state.end_lease(serial, event.reason)


def _late(state: FlowState, event: LeasesLate) -> None:
    for serial in event.serials:
        lease = state.leases.get(serial)
        wanted = None if lease is None else state.pending.get(lease.draw)
        if lease is not None and wanted is not None and serial not in state.late:
            state.late.add(serial)
            wanted.failures += 1
            state.count("freed/late")
            state.update_unassigned(lease.draw, wanted)


def _finished(state: FlowState, event: GroupFinished, locations: Sequence[LogLocation]) -> None:
    generated = {name: facts.generated for name, (facts, _) in event.groups.items()}
    state.report(event.serial, event.reporter, generated, {})
    lease = state.leases[event.serial]
    for (name, (facts, reason)), place in zip(event.groups.items(), locations, strict=True):
        model = state.models[name]
        item = FinishedGroup(event.draw, facts, place, reason, facts.oldest, facts.newest)
        # The tokens of the group are in the buffer or dropped now. What is left of those of the lease is in
        # no sample.
        lease.reported[name] = lease.reported.get(name, 0) - generated[name]
        if reason:
            model.ledger.drop(reason, generated[name])
            model.dropped_groups.append(item)
        else:
            model.buffer[event.draw] = item
    state.end_lease(event.serial, UNUSED)
    state.finish_draw(event.draw, DUPLICATE)
    state.count("finished")


def _lost(state: FlowState, event: DrawLost) -> None:
    state.finish_draw(event.draw, event.reason)
    for model in state.models.values():
        model.lost_prompts[event.reason] = model.lost_prompts.get(event.reason, 0) + 1
    state.count(f"lost/{event.reason}")


def _composed(state: FlowState, event: BatchComposed) -> None:
    model = state.models[event.model]
    kept = [model.buffer.pop(draw) for draw in event.kept]
    for reason, draws in event.dropped.items():
        late = [replace(model.buffer.pop(draw), drop_reason=reason) for draw in draws]
        model.ledger.drop(reason, sum(item.facts.generated for item in late))
        model.dropped_groups += late
    items = sorted(kept + model.dropped_groups, key=lambda item: item.draw)
    unused = sorted([*state.pending, *model.buffer])
    tokens = sum(model.ledger.compose(item.facts, event.oldest) for item in kept)
    model.batches[event.version] = BatchRecord(
        items, model.lost_prompts, state.drawn, unused, event.oldest, tokens
    )
    model.dropped_groups, model.lost_prompts, model.next_batch = [], {}, event.version + 1
    for item in items:
        model.audit.add(item.facts, item.drop_reason)
    # All models have their batch of this round, so the next one may be drawn.
    if all(each.next_batch > event.version for each in state.models.values()):
        state.round = None


def _handed_out(state: FlowState, event: BatchHandedOut) -> None:
    record = state.models[event.model].batches[event.version]
    kept = sum(not item.drop_reason for item in record.groups)
    state.count("groups/replayed" if record.times_handed_out else "groups/fresh", kept)
    record.times_handed_out += 1


def _published(state: FlowState, event: WeightsPublished) -> None:
    model = state.models[event.model]
    model.offer = event.offer
    model.reach(event.offer.version)


def _saved(state: FlowState, event: CheckpointSaved) -> None:
    model = state.models[event.model]
    model.checkpoints = [*(save for save in model.checkpoints if save < event.version), event.version][
        -event.keep :
    ]
    # Before that, the trainer may still return to an earlier state, and needs the batches from there.
    if len(model.checkpoints) == event.keep:
        for version in [version for version in model.batches if version < model.checkpoints[0]]:
            del model.batches[version]


def _adopted(state: FlowState, event: TrainerAdopted) -> None:
    model = state.models[event.model]
    model.version = model.newest = model.next_batch = event.version
    model.ready = True
    state.drawn = max(state.drawn, event.drawn)
    for draw, problem in event.redrawn:
        state.pending[draw] = PendingPrompt(problem)
        state.unassigned.add(draw)
    if event.lost:
        model.lost_prompts["log_lost"] = event.lost
        state.count("lost/log_lost", event.lost)


def _counted(state: FlowState, event: EventCounted) -> None:
    state.count(event.name)


_APPLY: dict[type, Callable[[FlowState, Any], None]] = {
    PromptsDrawn: _drawn,
    DrawsLeased: _leased,
    LeasesFreed: _freed,
    LeasesLate: _late,
    DrawLost: _lost,
    BatchComposed: _composed,
    BatchHandedOut: _handed_out,
    WeightsPublished: _published,
    ProgressReported: _reported,
    VersionReached: lambda state, event: state.models[event.model].reach(event.version),
    CheckpointSaved: _saved,
    TrainerAdopted: _adopted,
    EventCounted: _counted,
}

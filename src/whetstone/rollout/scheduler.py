"""The decisions of a flow: lease prompts, accept groups, compose batches. It has no clock, sockets or waits.

Every call gets the current time. A decision becomes an event, which is written to the log before it takes
effect; if writing fails, nothing has happened. Every call can be repeated: the second one finds its work
done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from whetstone.rollout.batch_composition import (
    ABANDONED,
    STALE,
    age,
    batch_from_buffer,
    batch_from_round,
    no_signal_reason,
    prompts_admitted,
)
from whetstone.rollout.events import (
    BatchComposed,
    BatchHandedOut,
    CheckpointSaved,
    DrawLost,
    Event,
    EventCounted,
    GroupFinished,
    LeasesFreed,
    LeasesLate,
    ProgressReported,
    TrainerAdopted,
    VersionReached,
    WeightsPublished,
    apply,
)
from whetstone.rollout.flow_rules import FlowRefusal, FlowRules
from whetstone.rollout.group_facts import MOST_TOKENS, GroupFacts, LogLocation, drop_reason_of_rewards
from whetstone.rollout.leasing import ReplicaState, lease_more, replica_quota
from whetstone.rollout.ledger import DEAD, DUPLICATE
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import BatchRecord, FlowState, ModelState, Offer, new_state

# More draws are no count. The numbers of draws must fit into the integers of the log.
_MOST_DRAWN = 1 << 48


class Log(Protocol):
    """Where events are written."""

    def append(
        self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False
    ) -> list[LogLocation]:
        """Write an event and its groups, completely or not at all; return the locations of the groups.

        ``synced``: the event is on disk when this returns. Raises UserError for a full disk.
        """
        ...

    def read(self, location: LogLocation) -> bytes:
        """Return the bytes of a group."""
        ...

    def compact(self, state: FlowState) -> None:
        """Delete what is not needed to restore ``state``, if it is much."""
        ...


class LeaseGrant(Struct, frozen=True, array_like=True):
    """A lease for a replica: sample the problem of this draw."""

    serial: int
    draw: int
    problem: str


class _LeaseUpdate(Struct, frozen=True):
    """A replica's new leases, the leases that it holds and that have ended, and the weights to serve."""

    leases: list[LeaseGrant]
    revoked: list[int]
    weight_updates: dict[str, Offer]


class Delivery(Struct, frozen=True):
    """A finished prompt: for each model the facts of its group, and the encoded group."""

    serial: int
    draw: int
    groups: dict[str, tuple[GroupFacts, bytes]]


Progress = Mapping[int, Mapping[str, tuple[int, int]]]
"""By lease and model: the tokens that were generated so far, and a version of weights such that no token, now
or later, is older."""


class FlowScheduler:
    """See the module docstring. ``source`` has the ids of the problems in draw order."""

    def __init__(
        self,
        rules: FlowRules,
        source: PromptSource[str],
        log: Log,
        now: float,
        state: FlowState | None = None,
    ) -> None:
        """``state``: from the log of a restarted flow; the time of its leases starts anew."""
        self.rules, self.source, self.log = rules, source, log
        self.state = state or new_state(rules.models)
        self.replicas: dict[str, ReplicaState] = {
            name: ReplicaState(last_heard=now) for name in self.state.leases_by_replica
        }
        self._total_room = 0
        self.grant_times = deque((serial, now) for serial in sorted(self.state.leases))

    def record(self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False) -> None:
        """Write an event to the log, then apply it."""
        places = self.log.append(event, payloads, synced=synced)
        apply(self.state, event, places)
        self.log.compact(self.state)

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
        progress: Progress | None = None,
        reporter: str = "",
    ) -> _LeaseUpdate:
        """Process the message of a replica: the leases that it holds, and its room (0: it drains).

        ``progress``: of its process ``reporter``. Returns the leases that it lacks and new ones up to its
        room. Raises FlowRefusal for other models than those of this run, and for a room that no share of a
        round fits in.
        """
        self._check_models(versions)
        member = self.replicas.setdefault(replica, ReplicaState(last_heard=now))
        self._total_room += max(room, 0) - max(member.room, 0)
        member.update(now, room, dict(versions), dict(load or {}))
        self.report(replica, progress or {}, reporter)
        before = self.state.last_serial
        for event in lease_more(self.state, self.rules, self.source, replica, member, self._total_room):
            self.record(event)
        self.grant_times.extend((serial, now) for serial in range(before + 1, self.state.last_serial + 1))
        state = self.state
        while self.grant_times and self.grant_times[0][0] not in state.leases:
            self.grant_times.popleft()
        leased = state.leases_by_replica.get(replica, set())
        held = set(holding)
        missing = [(serial, state.leases[serial].draw) for serial in sorted(leased - held)]
        return _LeaseUpdate(
            [LeaseGrant(serial, draw, self.problem(draw)) for serial, draw in missing],
            sorted(held - leased),
            {name: model.offer for name, model in state.models.items() if model.offer is not None},
        )

    def problem(self, draw: int) -> str:
        """Return the problem id of a draw."""
        wanted = self.state.pending.get(draw)
        return self.source.at(draw) if wanted is None else wanted.problem

    def report(self, replica: str, progress: Progress, reporter: str) -> None:
        """Record what a process of a replica has generated for its leases so far. Ended leases, unknown
        models, impossible numbers and what is known already are ignored."""
        tokens: dict[int, dict[str, int]] = {}
        oldest: dict[int, dict[str, int]] = {}
        for serial, by_model in progress.items():
            lease = self.state.leases.get(serial)
            if lease is None or lease.replica != replica:
                continue
            known = lease.reported if lease.reporter == reporter else {}
            for name in by_model.keys() & lease.oldest.keys():
                generated, version = by_model[name]
                if known.get(name, 0) < generated <= MOST_TOKENS:
                    tokens.setdefault(serial, {})[name] = generated
                if lease.oldest[name] < version <= self.state.models[name].newest:
                    oldest.setdefault(serial, {})[name] = version
        if tokens or oldest:
            self.record(ProgressReported(reporter, tokens, oldest))

    def deliver(self, replica: str, delivery: Delivery, now: float, reporter: str = "") -> str:
        """Accept a finished prompt: ``taken``; or ``duplicate`` or ``revoked``, which change nothing.
        ``reporter``: the process that sampled it.

        Raises FlowRefusal for an invalid group: other models, another problem, weights that were never
        published, or weights of another version than the round's.
        """
        state = self.state
        if replica in self.replicas:
            self.replicas[replica].last_heard = now
        lease = state.leases.get(delivery.serial)
        progress = {
            delivery.serial: {name: (facts.generated, 0) for name, (facts, _) in delivery.groups.items()}
        }
        if delivery.draw < state.drawn and delivery.draw not in state.pending:
            if lease is not None:
                self.report(replica, progress, reporter)
                self.record(LeasesFreed([delivery.serial], DUPLICATE, False))
            self.record(EventCounted("duplicate"))
            return "duplicate"
        if lease is None or lease.replica != replica or lease.draw != delivery.draw:
            self.record(EventCounted("revoked"))
            return "revoked"
        if why := self._delivery_error(delivery):
            self.report(replica, progress, reporter)
            self.record(LeasesFreed([delivery.serial], "refused", True))
            self._drop_abandoned()
            raise FlowRefusal("group", f"draw {delivery.draw} from {replica}: {why}")
        groups = {
            name: (facts, self._drop_reason(name, facts)) for name, (facts, _) in delivery.groups.items()
        }
        payloads = [payload for _, payload in delivery.groups.values()]
        self.record(GroupFinished(delivery.serial, delivery.draw, groups, reporter), payloads)
        return "taken"

    def give_back(self, replica: str, serials: Sequence[int], reason: str, *, count_failure: bool) -> None:
        """End leases without a group. ``count_failure``: the prompt may be the cause."""
        held = self.state.leases_by_replica.get(replica, set())
        if ended := sorted(held.intersection(serials)):
            self.record(LeasesFreed(ended, reason, count_failure))
            self._drop_abandoned()

    def leave(self, replica: str) -> None:
        """Remove a replica. Its leases go to other replicas."""
        self.give_back(
            replica, sorted(self.state.leases_by_replica.get(replica, set())), "returned", count_failure=False
        )
        self._remove_replica(replica)

    def has_prompts(self) -> bool:
        """Return whether any replica could get a prompt now."""
        state = self.state
        if state.unassigned or self.rules.staleness == 0:
            return True
        return (
            prompts_admitted(
                state, self.rules, {name: model.next_batch for name, model in state.models.items()}
            )
            > 0
        )

    def may_take(self, replica: str) -> bool:
        """Return whether a replica holds fewer prompts than it may."""
        member = self.replicas.get(replica)
        held = len(self.state.leases_by_replica.get(replica, ()))
        if member is None or member.room <= 0:
            return False
        return held < (
            replica_quota(self.rules, member.room, self._total_room) if self.rules.staleness else 1
        )

    def _remove_replica(self, replica: str) -> None:
        if (member := self.replicas.pop(replica, None)) is not None:
            self._total_room -= max(member.room, 0)

    def expire(self, now: float) -> None:
        """Take back the leases of silent replicas, and let other replicas sample late prompts."""
        for name, member in list(self.replicas.items()):
            if now - member.last_heard > self.rules.silence_s:
                if mine := sorted(self.state.leases_by_replica.get(name, set())):
                    self.record(LeasesFreed(mine, DEAD, True))
                self._remove_replica(name)
        late: list[int] = []
        while self.grant_times and now - self.grant_times[0][1] > self.rules.lease_s:
            late.append(self.grant_times.popleft()[0])
        if late := [serial for serial in late if serial in self.state.leases]:
            self.record(LeasesLate(late))
        self._drop_abandoned()

    # -- trainers

    def next_batch(self, name: str, version: int) -> BatchRecord | None:
        """Return the batch for ``version``, or None if there is none yet.

        A batch never changes: a repeated request gets the same one. Raises FlowRefusal for a version whose
        batch was deleted or is not due yet, and if prompts give no group to train on.
        """
        model = self._model(name)
        if version > model.next_batch or (version < model.next_batch and version not in model.batches):
            raise FlowRefusal("version", self._version_error(name, version))
        if version not in model.batches:
            if version != model.version or not model.ready:
                self.record(VersionReached(name, version))
            composed = self.compose(name)
            if composed is None:
                if why := no_signal_reason(self.state, self.rules, name):
                    raise FlowRefusal("no_signal", why)
                return None
            # The event must be on disk before the trainer gets the batch. Otherwise a restarted flow could
            # hand out the same groups in another batch.
            self.record(composed, synced=True)
        self.record(BatchHandedOut(name, version))
        return model.batches[version]

    def compose(self, name: str) -> BatchComposed | None:
        """Compose the next batch of a model if it has enough groups and the other models are at the same
        version."""
        version = self.state.models[name].next_batch
        if any(not other.ready or other.version < version for other in self.state.models.values()):
            return None
        compose = batch_from_buffer if self.rules.staleness else batch_from_round
        return compose(self.state, self.rules, name)

    def publish(self, name: str, offer: Offer) -> None:
        """Record published weights. Repeating the same offer changes nothing."""
        model = self._model(name)
        if not 0 <= offer.version <= model.next_batch:
            raise FlowRefusal("version", self._version_error(name, offer.version))
        if offer != model.offer:
            self.record(WeightsPublished(name, offer))

    def checkpoint_saved(self, name: str, version: int) -> None:
        """Record that a checkpoint holds ``version``. Batches that only older checkpoints need are deleted.

        Raises FlowRefusal for a version that no checkpoint can hold yet.
        """
        model = self._model(name)
        if not 0 <= version <= model.next_batch:
            raise FlowRefusal("version", self._version_error(name, version))
        if version not in model.checkpoints:
            self.record(CheckpointSaved(name, version, self.rules.keep_saves))

    def resume(self, name: str, version: int, drawn: int, unused: Sequence[int]) -> None:
        """Record that a trainer starts at ``version``: ``drawn`` prompts were drawn, and ``unused`` of them
        in no batch.

        A flow that has the batches from there hands them out again. A flow without events replaces one whose
        log is lost. Raises FlowRefusal in all other cases, and for draws that were not drawn.
        """
        model = self._model(name)
        if not 0 <= drawn <= _MOST_DRAWN or any(not 0 <= draw < drawn for draw in unused):
            raise FlowRefusal("version", f"{name}: {drawn} prompts drawn, and unused draws not among them")
        if model.next_batch == 0 and not self.state.last_serial and version > 0:
            one = len(self.state.models) == 1
            wanted = [(draw, self.source.at(draw)) for draw in sorted(set(unused))] if one else []
            self.record(TrainerAdopted(name, version, drawn, wanted, 0 if one else len(unused)), synced=True)
        elif version != model.next_batch and version not in model.batches:
            raise FlowRefusal("version", self._version_error(name, version))
        else:
            self.record(VersionReached(name, version))

    # -- internal

    def _model(self, name: str) -> ModelState:
        self._check_models([name], require_all=False)
        return self.state.models[name]

    def _check_models(self, names: Mapping[str, int] | Sequence[str], *, require_all: bool = True) -> None:
        known = self.state.models.keys()
        if set(names) - known or (require_all and known - set(names)):
            raise FlowRefusal(
                "models", f"{', '.join(sorted(names))}: this run's models are {', '.join(sorted(known))}"
            )

    def _delivery_error(self, delivery: Delivery) -> str:
        """Return what is invalid in a delivery; empty if it is valid."""
        state = self.state
        if delivery.groups.keys() != state.models.keys():
            return f"groups of {', '.join(delivery.groups)}, not of {', '.join(state.models)}"
        problem = state.pending[delivery.draw].problem
        for name, (facts, _) in delivery.groups.items():
            model = state.models[name]
            if facts.problem != problem:
                return f"it is a group of {facts.problem}, not of {problem}"
            if facts.newest is not None and facts.newest > model.newest:
                return (
                    f"tokens of weights {facts.newest}, but the newest weights of {name} are {model.newest}"
                )
            due = state.round.version if state.round else None
            if (
                self.rules.staleness == 0
                and facts.oldest is not None
                and {facts.oldest, facts.newest} != {due}
            ):
                return f"tokens of weights {facts.oldest} to {facts.newest}, in a round of weights {due}"
        return ""

    def _drop_reason(self, name: str, facts: GroupFacts) -> str:
        filtered = self.rules.drop_zero_variance and name not in self.rules.unfiltered
        reason = drop_reason_of_rewards(facts.rewards, drop_zero_variance=filtered)
        if reason is not None:
            return reason
        behind = age(self.rules, facts, self.state.models[name].next_batch)
        return STALE if behind > self.rules.staleness else ""

    def _drop_abandoned(self) -> None:
        for draw in sorted(self.state.unassigned):
            if self.state.pending[draw].failures >= self.rules.most_failures:
                self.record(DrawLost(draw, ABANDONED))

    def _version_error(self, name: str, version: int) -> str:
        model = self.state.models[name]
        known = [*sorted(model.batches), model.next_batch]
        return (
            f"{name} is at version {version}, and the flow has the batches of {known[0]} to {known[-1]}: "
            "start from a checkpoint of these versions, or remove the flow's log so that it starts "
            "where the trainer is"
        )

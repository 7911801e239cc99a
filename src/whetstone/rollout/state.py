"""The state of a flow: which replica samples which prompt, what is finished, and the content of each batch.

It is plain data without a clock, so it can be saved and loaded. It changes only through events
(``events.py``): applying all events in order gives the same state.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from whetstone.rollout.audit import Audit
from whetstone.rollout.group_facts import GroupFacts, LogLocation
from whetstone.rollout.ledger import DEAD, DUPLICATE, TokenLedger
from whetstone.weights.offer import Offer


class FinishedGroup(Struct, frozen=True, array_like=True):
    """A finished group of one model. ``drop_reason``: why it is not trained on; empty if it may be.
    ``oldest`` and ``newest`` are those of its facts."""

    draw: int
    facts: GroupFacts
    location: LogLocation
    drop_reason: str
    oldest: int | None
    newest: int | None


class Lease(Struct, array_like=True):
    """The right of a replica to sample a prompt.

    oldest: for each model a version of weights such that no token of the group is older. reported: the
    generated tokens of each model. Both are what the process ``reporter`` has reported last.
    """

    draw: int
    replica: str
    oldest: dict[str, int]
    reporter: str = ""
    reported: dict[str, int] = field(default_factory=dict[str, int])


class PendingPrompt(Struct, array_like=True):
    """A drawn prompt that is not finished: its active leases, and how often it was taken back."""

    problem: str
    leases: list[int] = field(default_factory=list[int])
    failures: int = 0


class BatchRecord(Struct):
    """The content of a batch: all groups that were finished for it, in draw order.

    lost: prompts that gave no group, by reason. drawn: the number of prompts drawn until then. unused: the
    draws among them that no batch has used. oldest: tokens of older weights carry no loss; None: none is too
    old. tokens: those that carry loss. times_handed_out: how often trainers received it. trained: whether the
    trainer is at a later version. replayed: whether it had been, and returned to an earlier checkpoint.
    """

    groups: list[FinishedGroup]
    lost: dict[str, int]
    drawn: int
    unused: list[int]
    oldest: int | None = None
    tokens: int = 0
    times_handed_out: int = 0
    trained: bool = False
    replayed: bool = False


class ModelState(Struct):
    """The state of one model.

    buffer: finished groups that a batch may use, by draw. dropped_groups: until a batch reports them.
    lost_prompts: prompts without a group, by reason, until a batch reports them. batches: by the version that
    trains on them. next_batch: the first version without a batch. ready: whether its trainer has connected.
    version: the trainer's version. newest: the highest version that it ever had. checkpoints: the versions of
    its kept checkpoints. ledger: of the tokens.
    """

    buffer: dict[int, FinishedGroup] = field(default_factory=dict[int, FinishedGroup])
    dropped_groups: list[FinishedGroup] = field(default_factory=list[FinishedGroup])
    lost_prompts: dict[str, int] = field(default_factory=dict[str, int])
    batches: dict[int, BatchRecord] = field(default_factory=dict[int, BatchRecord])
    next_batch: int = 0
    ready: bool = False
    version: int = 0
    newest: int = 0
    offer: Offer | None = None
    checkpoints: list[int] = field(default_factory=list[int])
    audit: Audit = field(default_factory=Audit)
    ledger: TokenLedger = field(default_factory=TokenLedger)

    def reach(self, version: int) -> None:
        """Record that the trainer is at ``version``: it has trained on the batches before, and will train on
        the others (again)."""
        self.version, self.ready = version, True
        self.newest = max(self.newest, version)
        for batch, record in self.batches.items():
            self._settle(record, trained=batch < version)

    def _settle(self, record: BatchRecord, *, trained: bool) -> None:
        if record.trained == trained:
            return
        change = record.tokens if trained else -record.tokens
        if record.replayed:
            self.ledger.replayed += change
        else:
            self.ledger.trained += change
        record.trained = trained
        # The trainer has returned to an earlier checkpoint, and will train on the batch again.
        record.replayed = record.replayed or not trained


class SynchronousRound(Struct):
    """Prompts that are sampled together for the batch of ``version``; one replica samples each share."""

    version: int
    shares: list[list[int]]
    rounds: int = 1


class FlowState(Struct):
    """The complete state of a flow.

    drawn: the number of drawn prompts. last_serial: the number of the last lease. pending: draws that are not
    finished. unassigned: pending draws without a lease that is on time. leases: by number; late: leases that
    last too long; leases_by_replica: lease numbers by replica.
    """

    models: dict[str, ModelState]
    drawn: int = 0
    last_serial: int = 0
    pending: dict[int, PendingPrompt] = field(default_factory=dict[int, PendingPrompt])
    unassigned: set[int] = field(default_factory=set[int])
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    late: set[int] = field(default_factory=set[int])
    leases_by_replica: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    round: SynchronousRound | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def is_new(self) -> bool:
        """Whether nothing has happened yet."""
        return not (self.last_serial or self.drawn or any(model.ready for model in self.models.values()))

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        if by:
            self.counts[name] = self.counts.get(name, 0) + by

    def report(
        self, serial: int, reporter: str, tokens: Mapping[str, int], oldest: Mapping[str, int]
    ) -> None:
        """Record what the process ``reporter`` has generated for a lease so far, by model: the tokens, and
        the version of weights that no token is older than."""
        lease = self.leases[serial]
        lease.oldest |= oldest
        if lease.reporter != reporter:
            # Another process samples the prompt from its beginning.
            self._drop_reported(lease, DEAD)
            lease.reporter, lease.reported = reporter, {}
        for name, count in tokens.items():
            more = count - lease.reported.get(name, 0)
            if more > 0:
                lease.reported[name] = count
                self.models[name].ledger.generated += more

    def _drop_reported(self, lease: Lease, reason: str) -> None:
        for name, count in lease.reported.items():
            self.models[name].ledger.drop(reason, count)

    def end_lease(self, serial: int, reason: str) -> None:
        """Remove a lease if it exists. Its reported tokens are dropped for ``reason``."""
        lease = self.leases.pop(serial, None)
        if lease is None:
            return
        self._drop_reported(lease, reason)
        self.late.discard(serial)
        mine = self.leases_by_replica[lease.replica]
        mine.discard(serial)
        if not mine:
            del self.leases_by_replica[lease.replica]
        wanted = self.pending.get(lease.draw)
        if wanted is not None and serial in wanted.leases:
            wanted.leases.remove(serial)
            self.update_unassigned(lease.draw, wanted)

    def update_unassigned(self, draw: int, wanted: PendingPrompt) -> None:
        """Mark a pending draw as unassigned if all of its leases are late."""
        if all(serial in self.late for serial in wanted.leases):
            self.unassigned.add(draw)

    def finish_draw(self, draw: int, reason: str) -> None:
        """Remove a pending draw. Once a share is complete, also end all leases of its draws.

        ``reason``: why the tokens of other leases of the draw are dropped.
        """
        for serial in self.pending.pop(draw).leases:
            self.end_lease(serial, reason)
        self.unassigned.discard(draw)
        if self.round is None:
            return
        for share in self.round.shares:
            if draw in share and not any(each in self.pending for each in share):
                for serial in [serial for serial, lease in self.leases.items() if lease.draw in share]:
                    self.end_lease(serial, DUPLICATE)

    def log_files(self) -> set[int]:
        """Return the numbers of the log files that hold groups which may still be read."""
        return {
            item.location.file
            for model in self.models.values()
            for items in (
                model.buffer.values(),
                model.dropped_groups,
                *(record.groups for record in model.batches.values()),
            )
            for item in items
        }


def new_state(models: tuple[str, ...]) -> FlowState:
    """Return a state without events."""
    return FlowState({name: ModelState() for name in models})

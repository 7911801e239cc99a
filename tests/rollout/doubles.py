"""A flow in this process: its scheduler on an event log in memory, and groups without samples."""

from __future__ import annotations

from collections.abc import Sequence

from whetstone.rollout.events import Event
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.group_facts import GroupFacts, LogLocation, checksum
from whetstone.rollout.scheduler import Delivery, FlowScheduler, LeaseGrant
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import FlowState


class MemoryLog:
    """Keeps the groups that may still be read, and no events."""

    def __init__(self) -> None:
        self._groups: dict[int, Sequence[bytes]] = {}
        self._kept_after_compaction = 0
        self._next = 0

    def append(
        self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False
    ) -> list[LogLocation]:
        """See Log."""
        if not payloads:
            return []
        self._next += 1
        self._groups[self._next] = tuple(payloads)
        return [LogLocation(self._next, n, len(data), checksum(data)) for n, data in enumerate(payloads)]

    def read(self, location: LogLocation) -> bytes:
        """See Log."""
        return self._groups[location.file][location.offset]

    def compact(self, state: FlowState) -> None:
        """See Log."""
        if len(self._groups) > 2 * self._kept_after_compaction + 256:
            needed = state.log_files()
            self._groups = {file: self._groups[file] for file in self._groups if file in needed}
            self._kept_after_compaction = len(self._groups)


def started(rules: FlowRules, problems: int = 2, version: int = 0) -> FlowScheduler:
    """A scheduler whose trainers have started at ``version``."""
    source = PromptSource([f"p{number}" for number in range(problems)], 0)
    scheduler = FlowScheduler(rules, source, MemoryLog(), 0.0)
    for model in rules.models:
        scheduler.resume(model, version, 0, [])
    return scheduler


def take(scheduler: FlowScheduler, replica: str, room: int, version: int = 0) -> list[LeaseGrant]:
    """The prompts that a replica without any gets."""
    versions = dict.fromkeys(scheduler.state.models, version)
    return scheduler.take(replica, holding=[], room=room, versions=versions, now=0.0).leases


def finish(
    scheduler: FlowScheduler,
    replica: str,
    grant: LeaseGrant,
    rewards: Sequence[float | None] = (0.0, 1.0),
    version: int = 0,
) -> None:
    """Deliver the same group of a prompt for each model."""
    facts = facts_at(grant.problem, "", "", [*rewards], [3, 1], version)
    groups: dict[str, tuple[GroupFacts, bytes]] = dict.fromkeys(scheduler.state.models, (facts, b"a group"))
    assert scheduler.deliver(replica, Delivery(grant.serial, grant.draw, groups), 0.0) == "taken"


def facts_at(
    problem: str, source: str, difficulty: str, rewards: list[float | None], lengths: list[int], version: int
) -> GroupFacts:
    """Facts of a group whose tokens are all of one weight version."""
    tokens = [{version: length} if length else {} for length in lengths]
    return GroupFacts(problem, source, difficulty, rewards, tokens, [""] * len(rewards))

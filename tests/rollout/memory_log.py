"""An event log in memory, for a flow that need not outlive its process."""

from __future__ import annotations

from collections.abc import Sequence

from whetstone.rollout.events import Event
from whetstone.rollout.group_facts import LogLocation, checksum
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

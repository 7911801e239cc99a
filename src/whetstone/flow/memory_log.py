"""The log of a flow that need not outlive its process."""

from __future__ import annotations

from collections.abc import Sequence

from whetstone.flow.books import Books
from whetstone.flow.events import Event
from whetstone.flow.facts import Place, checksum


class MemoryLog:
    """Keeps the groups that may still be asked for, and no events."""

    def __init__(self) -> None:
        self._groups: dict[int, Sequence[bytes]] = {}
        self._tidied = 0
        self._next = 0

    def append(self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False) -> list[Place]:
        """See Log."""
        if not payloads:
            return []
        self._next += 1
        self._groups[self._next] = tuple(payloads)
        return [Place(self._next, n, len(data), checksum(data)) for n, data in enumerate(payloads)]

    def read(self, place: Place) -> bytes:
        """See Log."""
        return self._groups[place.file][place.offset]

    def tidy(self, books: Books) -> None:
        """See Log."""
        if len(self._groups) > 2 * self._tidied + 256:
            needed = books.files()
            self._groups = {file: self._groups[file] for file in self._groups if file in needed}
            self._tidied = len(self._groups)

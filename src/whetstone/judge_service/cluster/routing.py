"""Which node does which program: a plain object, without clock, network or threads.

A program goes to the node with the least to do for each of its workers, and only so many ahead of what the
workers run: the others wait here, so that a node that joins finds work. A node that is lost gives back what
it had. Whatever happens, each program is answered exactly once: ``done`` is true for one answer alone.

A program may be what its node was lost of. After ``SUSPECT_AFTER`` losses it is under suspicion, and no node
has two such programs at once: whoever kills nodes then takes none of the others with it again. After
``MOST_LOSSES`` it is given up.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

SUSPECT_AFTER = 2
MOST_LOSSES = 4
PER_WORKER = 4
"""Programs that a node has for each of its workers: one that runs, the others so that it never waits."""
_COMPACT_FROM = 64


@dataclass(eq=False)
class _Work:
    """One program: where it stands in the line, and where it is."""

    order: tuple[float, ...]
    losses: int = 0
    node: str | None = None


@dataclass(eq=False)
class _Node:
    workers: int
    under_way: set[int] = field(default_factory=set[int])
    suspect: int | None = None
    stamp: int = 0

    @property
    def load(self) -> float:
        return len(self.under_way) / self.workers

    @property
    def has_room(self) -> bool:
        return len(self.under_way) < PER_WORKER * self.workers


class Routing:
    """Programs by a number of theirs, nodes by name. No name is used twice."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._works: dict[int, _Work] = {}
        self._waiting: list[tuple[tuple[float, ...], int]] = []
        self._suspects: list[tuple[tuple[float, ...], int]] = []
        self._free: list[tuple[float, int, str]] = []
        """Nodes with room by load, each with the stamp of when this was so."""
        self._stamps = 0
        self.workers = 0
        """Of all nodes together."""

    @property
    def waiting(self) -> int:
        """How many programs are on no node."""
        return len(self._works) - sum(len(node.under_way) for node in self._nodes.values())

    def under_way(self, node: str) -> int:
        """How many programs a node has; none where it is lost."""
        found = self._nodes.get(node)
        return len(found.under_way) if found else 0

    def joined(self, name: str, workers: int) -> None:
        """A node takes work from now on."""
        self._nodes[name] = _Node(workers)
        self.workers += workers
        self._changed(name)

    def left(self, name: str) -> tuple[int, list[int]]:
        """A node is lost: how many of its programs wait again, and which ones are given up."""
        node = self._nodes.pop(name)
        self.workers -= node.workers
        given_up = list[int]()
        for number in sorted(node.under_way):
            work = self._works[number]
            work.node = None
            work.losses += 1
            if work.losses >= MOST_LOSSES:
                del self._works[number]
                given_up.append(number)
            else:
                self._line(number, work)
        return len(node.under_way) - len(given_up), given_up

    def add(self, number: int, priority: float, deadline: float) -> None:
        """A program waits: higher priority goes first, then the earlier deadline, then the lower number."""
        work = self._works[number] = _Work((-priority, deadline, number))
        self._line(number, work)

    def place(self) -> Iterator[tuple[int, str]]:
        """Every program that can go to a node now, and the node."""
        while (number := self._first(self._suspects)) is not None:
            free = [name for name, node in self._nodes.items() if node.has_room and node.suspect is None]
            if not free:
                break
            heapq.heappop(self._suspects)
            name = min(free, key=lambda each: self._nodes[each].load)
            self._nodes[name].suspect = number
            yield self._to(number, name)
        while (number := self._first(self._waiting)) is not None and (name := self._freest()) is not None:
            heapq.heappop(self._waiting)
            yield self._to(number, name)

    def done(self, number: int, name: str) -> bool:
        """A node has an answer: whether it is the one that counts."""
        work = self._works.get(number)
        if work is None or work.node != name:
            return False
        self._take_from_node(number, work)
        del self._works[number]
        return True

    def drop(self, number: int) -> str | None:
        """Nobody wants an answer any more: the node that has the program, if one has."""
        work = self._works.pop(number, None)
        if work is None or work.node is None:
            return None
        self._take_from_node(number, work)
        return work.node

    def is_on_node(self, number: int) -> bool:
        """Whether a node has the program."""
        work = self._works.get(number)
        return work is not None and work.node is not None

    def _line(self, number: int, work: _Work) -> None:
        line = self._suspects if work.losses >= SUSPECT_AFTER else self._waiting
        heapq.heappush(line, (work.order, number))

    def _first(self, line: list[tuple[tuple[float, ...], int]]) -> int | None:
        """The first of a line that still waits."""
        while line and line[0][1] not in self._works:
            heapq.heappop(line)
        return line[0][1] if line else None

    def _to(self, number: int, name: str) -> tuple[int, str]:
        self._works[number].node = name
        self._nodes[name].under_way.add(number)
        self._changed(name)
        return number, name

    def _take_from_node(self, number: int, work: _Work) -> None:
        node = self._nodes[work.node or ""]
        node.under_way.discard(number)
        if node.suspect == number:
            node.suspect = None
        self._changed(work.node or "")

    def _changed(self, name: str) -> None:
        """Note a node's load, in place of what was noted of it before."""
        node = self._nodes[name]
        self._stamps += 1
        node.stamp = self._stamps
        if len(self._free) > _COMPACT_FROM + 4 * len(self._nodes):
            self._free = [entry for entry in self._free if self._is_so(entry)]
            heapq.heapify(self._free)
        if node.has_room:
            heapq.heappush(self._free, (node.load, node.stamp, name))

    def _is_so(self, entry: tuple[float, int, str]) -> bool:
        node = self._nodes.get(entry[2])
        return node is not None and node.stamp == entry[1]

    def _freest(self) -> str | None:
        """The node with room and the least load; of equals the one whose load changed longest ago."""
        while self._free and not self._is_so(self._free[0]):
            heapq.heappop(self._free)
        return self._free[0][2] if self._free else None

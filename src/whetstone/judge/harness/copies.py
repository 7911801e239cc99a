"""In the testing process: the test's copies of the program's containers. See ``containers``.

The copies are exact builtin types, filled with values that crossed: comparing one asks nobody. They change
when the test changes them, and when a reply of the program's arrives, as its own containers would meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from sys import getrefcount
from typing import Any, cast

from whetstone.judge.harness.containers import (
    CONTAINERS,
    MAX_ELEMENTS,
    Held,
    combined,
    content,
    difference,
    elements,
    is_same,
    make,
    refill,
)
from whetstone.judge.values import WireError, encode


@dataclass(slots=True)
class _Entry:
    copy: Any
    before: Any
    """What it held when program and test last agreed."""


_REFERENCES = getrefcount(_Entry([], None).copy)
"""References to a copy that nothing but its entry holds."""


class Copies:
    """The copies by the numbers that the program gave to its containers."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._numbers: dict[int, int] = {}
        self._unsent: list[bytes] = []
        self._busy = self._too_many = False
        self._met = 0
        """How many stand-ins were read that no container was put in place of yet."""

    def outgoing(self, export: Callable[[object], object]) -> tuple[bytes, ...]:
        """The test's changes since the last request; nothing in most cases. Raises NotInert."""
        if self._entries and not self._busy:
            # Reading a dict may compare objects of the program's, which asks it.
            self._busy = True
            try:
                self._unsent += self._changes(export)
            finally:
                self._busy = False
        return tuple(self._unsent)

    def delivered(self) -> None:
        """What was ``outgoing`` has arrived."""
        self._unsent.clear()

    def named(self, operation: str, arguments: tuple[Any, ...]) -> list[Any]:
        """Arguments, with what stands for those that are copies: the program gets its own container."""
        if not self._entries:
            return list(arguments)
        if operation == "call":
            target, args, kwargs = arguments
            return [target, list(map(self._named, args)), {k: self._named(v) for k, v in kwargs.items()}]
        return list(map(self._named, arguments))

    def met(self, number: int) -> Held:
        """What a number stands for, in a message that is being read."""
        self._met += 1
        return Held(number)

    def receive(self, changes: object) -> None:
        """Bring the copies to the program's changes. Raises WireError on nonsense."""
        match changes:
            case [list() as nodes, list() as forgotten]:
                pass
            case _:
                raise WireError("malformed changes")
        for number in cast("list[Any]", forgotten):
            self._forget(number)
        self._fill(cast("list[Any]", nodes))

    def placed(self, value: Any) -> Any:
        """``value``, which was read, with its copies in place. Raises WireError for unknown ones."""
        placed = self._placed(value)
        if self._met:
            raise WireError("a container where none may be")
        return placed

    def _fill(self, nodes: list[Any]) -> None:
        for node in nodes:
            match node:
                case [int() as number, (str() | None) as kind, _] if (kind is None) == (
                    number in self._entries
                ):
                    if kind is not None:
                        made = make(kind)
                        self._entries[number] = _Entry(made, content(made))
                        self._numbers[id(made)] = number
                case _:
                    raise WireError("malformed changes")
        for number, _, change in nodes:
            entry = self._entries[number]
            refill(entry.copy, combined(entry.before, change, self._placed))
            entry.before = content(entry.copy)
        if nodes:
            count = sum(1 + len(entry.before) for entry in self._entries.values())
            self._too_many = count > MAX_ELEMENTS

    def _placed(self, value: Any) -> Any:
        """``value`` with copies in the place of what stands for them."""
        if not self._met:
            return value
        if type(value) is Held:
            entry = self._entries.get(value.number)
            if entry is None:
                raise WireError("an unknown container")
            self._met -= 1
            return entry.copy
        if type(value) is tuple:
            return tuple(map(self._placed, cast("tuple[Any, ...]", value)))
        if isinstance(value, CONTAINERS):
            parts = elements(held := content(value))
            if parts:
                placed = [self._placed(part) for part in parts]
                refill(value, dict(zip(held, placed, strict=True)) if type(held) is dict else placed)
        return value

    def _changes(self, export: Callable[[object], object]) -> list[bytes]:
        released = self._released()
        changed: list[Any] = []
        for number, entry in self._entries.items():
            now = content(entry.copy)
            if not is_same(now, entry.before):
                changed.append((number, entry, now, difference(now, entry.before, self._named)))
        if not released and not changed:
            return []
        message = encode([released, [[number, change] for number, _, _, change in changed]], export)
        for _, entry, now, _ in changed:
            entry.before = now
        for number in released:
            self._forget(number)
        return [message]

    def _released(self) -> list[int]:
        """The numbers of the copies that the test can reach no more."""
        if self._too_many:
            return list(self._entries)
        inside = Counter[int]()
        for entry in self._entries.values():
            inside.update(map(id, elements(content(entry.copy))))
            inside.update(map(id, elements(entry.before)))
        waiting = [
            entry.copy
            for entry in self._entries.values()
            if getrefcount(entry.copy) > _REFERENCES + inside[id(entry.copy)]
        ]
        reached: set[int] = set()
        while waiting:
            found = waiting.pop()
            parts: list[Any] = list(found) if type(found) is tuple else []
            number = self._numbers.get(id(found))
            if number is not None and number not in reached:
                reached.add(number)
                parts = elements(content(found))
            waiting += [part for part in parts if isinstance(part, (tuple, *CONTAINERS))]
        return [number for number in self._entries if number not in reached]

    def _forget(self, number: Any) -> None:
        entry = self._entries.pop(number, None) if type(number) is int else None
        if entry is not None:
            del self._numbers[id(entry.copy)]

    def _named(self, part: Any) -> Any:
        if type(part) is tuple and any(isinstance(each, (tuple, *CONTAINERS)) for each in part):
            return tuple(map(self._named, part))
        number = self._numbers.get(id(part)) if isinstance(part, CONTAINERS) else None
        return part if number is None else Held(number)

"""In the test process: the test's copies of the program's containers. See ``containers``.

The copies are exact builtin types that contain values by value, so comparing one sends no request. They
change when the test changes them, and when a reply reports changes of the program's own containers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from sys import getrefcount
from typing import Any, cast

from whetstone.judge.rpc.containers import (
    CONTAINERS,
    MAX_ELEMENTS,
    ContainerReference,
    apply_difference,
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
    """Its content when program and test last had the same one."""


# The reference count of a copy that only its entry references.
_REFERENCES = getrefcount(_Entry([], None).copy)


class ClientContainers:
    """The copies by the numbers that the program gave to its containers."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._numbers: dict[int, int] = {}
        self._unsent: list[bytes] = []
        self._busy = self._too_many = False
        self._unresolved = 0
        """The number of references that were read and not yet replaced by their container."""

    def outgoing(self, export: Callable[[object], object]) -> tuple[bytes, ...]:
        """Return the test's changes since the last request, usually none. Raises NotInert."""
        if self._entries and not self._busy:
            # Reading a dict may compare the program's objects by a request, which calls this method again.
            self._busy = True
            try:
                self._unsent += self._changes(export)
            finally:
                self._busy = False
        return tuple(self._unsent)

    def mark_delivered(self) -> None:
        """Forget the changes of ``outgoing``, because the program has received them."""
        self._unsent.clear()

    def with_references(self, operation: str, arguments: tuple[Any, ...]) -> list[Any]:
        """Replace arguments that are copies by references, so that the program gets its own containers."""
        if not self._entries:
            return list(arguments)
        if operation == "call":
            target, args, kwargs = arguments
            return [
                target,
                list(map(self._with_reference, args)),
                {k: self._with_reference(v) for k, v in kwargs.items()},
            ]
        return list(map(self._with_reference, arguments))

    def register(self, number: int) -> ContainerReference:
        """Count and return a reference to the container ``number``, in a message that is being read."""
        self._unresolved += 1
        return ContainerReference(number)

    def receive(self, changes: object) -> None:
        """Apply the program's changes to the copies. Raises WireError if they are malformed."""
        match changes:
            case [list() as nodes, list() as forgotten]:
                pass
            case _:
                raise WireError("malformed changes")
        for number in cast("list[Any]", forgotten):
            self._forget(number)
        self._fill(cast("list[Any]", nodes))

    def resolve(self, value: Any) -> Any:
        """Replace the references in ``value``, just read, by copies. Raises WireError for unknown ones."""
        resolved = self._resolve(value)
        if self._unresolved:
            raise WireError("a container in an invalid place")
        return resolved

    def _fill(self, nodes: list[Any]) -> None:
        for node in nodes:
            match node:
                case [int() as number, (str() | None) as kind, _] if (kind is None) == (
                    number in self._entries
                ):
                    if kind is not None:
                        copy = make(kind)
                        self._entries[number] = _Entry(copy, content(copy))
                        self._numbers[id(copy)] = number
                case _:
                    raise WireError("malformed changes")
        for number, _, change in nodes:
            entry = self._entries[number]
            refill(entry.copy, apply_difference(entry.before, change, self._resolve))
            entry.before = content(entry.copy)
        if nodes:
            count = sum(1 + len(entry.before) for entry in self._entries.values())
            self._too_many = count > MAX_ELEMENTS

    def _resolve(self, value: Any) -> Any:
        """Return ``value`` with its references replaced by copies."""
        if not self._unresolved:
            return value
        if type(value) is ContainerReference:
            entry = self._entries.get(value.number)
            if entry is None:
                raise WireError("an unknown container")
            self._unresolved -= 1
            return entry.copy
        if type(value) is tuple:
            return tuple(map(self._resolve, cast("tuple[Any, ...]", value)))
        if isinstance(value, CONTAINERS):
            parts = elements(held := content(value))
            if parts:
                resolved = [self._resolve(part) for part in parts]
                refill(value, dict(zip(held, resolved, strict=True)) if type(held) is dict else resolved)
        return value

    def _changes(self, export: Callable[[object], object]) -> list[bytes]:
        released = self._released()
        changed: list[Any] = []
        for number, entry in self._entries.items():
            current = content(entry.copy)
            if not is_same(current, entry.before):
                changed.append(
                    (number, entry, current, difference(current, entry.before, self._with_reference))
                )
        if not released and not changed:
            return []
        message = encode([released, [[number, change] for number, _, _, change in changed]], export)
        for _, entry, current, _ in changed:
            entry.before = current
        for number in released:
            self._forget(number)
        return [message]

    def _released(self) -> list[int]:
        """Return the numbers of the copies that the test can no longer reach.

        This is a reachability search. Its roots are the copies with more references than entries and other
        copies account for: the test itself must hold those.
        """
        if self._too_many:
            return list(self._entries)
        inside = Counter[int]()
        for entry in self._entries.values():
            inside.update(map(id, elements(content(entry.copy))))
            inside.update(map(id, elements(entry.before)))
        pending = [
            entry.copy
            for entry in self._entries.values()
            if getrefcount(entry.copy) > _REFERENCES + inside[id(entry.copy)]
        ]
        reached: set[int] = set()
        while pending:
            found = pending.pop()
            parts: list[Any] = list(found) if type(found) is tuple else []
            number = self._numbers.get(id(found))
            if number is not None and number not in reached:
                reached.add(number)
                parts = elements(content(found))
            pending += [part for part in parts if isinstance(part, (tuple, *CONTAINERS))]
        return [number for number in self._entries if number not in reached]

    def _forget(self, number: Any) -> None:
        entry = self._entries.pop(number, None) if type(number) is int else None
        if entry is not None:
            del self._numbers[id(entry.copy)]

    def _with_reference(self, part: Any) -> Any:
        if type(part) is tuple and any(isinstance(each, (tuple, *CONTAINERS)) for each in part):
            return tuple(map(self._with_reference, part))
        number = self._numbers.get(id(part)) if isinstance(part, CONTAINERS) else None
        return part if number is None else ContainerReference(number)

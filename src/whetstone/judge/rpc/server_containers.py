"""In the program's process: the containers that the test has copies of. See ``containers``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from sys import getrefcount
from typing import Any, cast

from whetstone.judge.plain_forms import is_array
from whetstone.judge.rpc.containers import (
    CONTAINERS,
    MAX_ELEMENTS,
    ContainerReference,
    apply_difference,
    content,
    difference,
    elements,
    is_same,
    kind_of,
    make,
    refill,
)

_UNKNOWN = object()
_PLAIN_KEYS = frozenset({str, int, float, bool, bytes, type(None)})


@dataclass(slots=True)
class _Entry:
    container: Any
    before: Any
    """Its content when it was last sent to the test."""


class ServerContainers:
    """The containers by number, with the content that the test knows."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._numbers: dict[int, int] = {}
        self._new: list[int] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def resolve(self, message: list[Any]) -> list[Any]:
        """Replace the container references in an operation's message by the containers."""
        if message[0] == "call":
            operation, target, args, kwargs = message
            arguments = {key: self._container(value) for key, value in kwargs.items()}
            return [operation, target, list(map(self._container, args)), arguments]
        return list(map(self._container, message))

    def describe(self, parent: Any) -> Any:
        """Return ``parent`` with a reference for each container in it that is also referenced elsewhere.

        Such a container is part of the program's state. A container that only ``parent`` references was
        created for this result, and crosses by value.
        """
        held = parent if type(parent) is tuple else content(parent)
        parts: list[Any] = list(held) if type(parent) is tuple else elements(held)
        if not any(map(_may_contain, set(map(type, parts)))):
            return parent
        parts_to_send: list[Any] = []
        for index in range(len(parts)):
            shared = _references(parts, index) > _FRESH
            part = parts[index]
            if not _may_contain(type(part)):
                parts_to_send.append(part)
            elif shared or id(part) in self._numbers:
                parts_to_send.append(self._with_reference(part))
            else:
                parts_to_send.append(self.describe(part))
        if type(parent) is tuple:
            return tuple(parts_to_send)
        copy = make(kind_of(parent))
        refill(copy, dict(zip(held, parts_to_send, strict=True)) if type(held) is dict else parts_to_send)
        return copy

    def changes(self) -> list[Any]:
        """Return ``[nodes, forgotten]``: changes unknown to the test, and numbers that became invalid.

        A node is a number, the kind of container if it is new, and the difference to the content that the
        test knows.
        """
        forgotten = [number for number, entry in self._entries.items() if not _is_shareable(entry.container)]
        self.forget(forgotten)
        nodes: list[list[Any]] = []
        for number, entry in list(self._entries.items()):
            current = content(entry.container)
            if entry.before is not None and not is_same(current, entry.before):
                nodes.append([number, None, difference(current, entry.before, self._with_reference)])
                entry.before = self._known(current)
        while self._new:
            entry = self._entries[number := self._new.pop()]
            current, kind = content(entry.container), kind_of(entry.container)
            nodes.append([number, kind, difference(current, content(make(kind)), self._with_reference)])
            entry.before = self._known(current)
        return [nodes, forgotten]

    def apply(self, released: list[int], changes: list[Any]) -> None:
        """Apply the test's changes of its copies, and forget the ``released`` ones."""
        self.forget(released)
        for number, change in changes:
            entry = self._entries.get(number)
            if entry is not None:
                current = apply_difference(entry.before, change, self._container)
                refill(entry.container, current)
                # A container that the test inserted becomes the program's own. Its content counts as unknown
                # to the test, so that the next reply describes it.
                entry.before = self._known(content(entry.container))

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget these containers: from now on they cross by value."""
        for number in numbers:
            entry = self._entries.pop(number, None)
            if entry is not None:
                del self._numbers[id(entry.container)]

    def forget_all(self) -> list[int]:
        """Forget all containers, and return their numbers."""
        forgotten = list(self._entries)
        self.forget(forgotten)
        self._new.clear()
        return forgotten

    def _container(self, part: Any) -> Any:
        if type(part) is tuple and any(type(each) in (ContainerReference, tuple) for each in part):
            return tuple(map(self._container, part))
        return self._entries[part.number].container if type(part) is ContainerReference else part

    def _known(self, current: Any) -> Any:
        """Return a content as the test knows it, with a marker for each part that can change unnoticed."""
        if type(current) is dict:
            return {key: self._stable_part(part) for key, part in cast("dict[Any, Any]", current).items()}
        return (
            [self._stable_part(part) for part in cast("list[Any]", current)]
            if type(current) is list
            else current
        )

    def _stable_part(self, part: Any) -> Any:
        kind = type(part)
        if kind in _PLAIN_KEYS:
            return part
        if issubclass(kind, CONTAINERS):
            return part if id(part) in self._numbers else _UNKNOWN
        if issubclass(kind, tuple):
            inside = tuple.__iter__(cast("tuple[Any, ...]", part))
            return part if all(self._stable_part(each) is each for each in inside) else _UNKNOWN
        return _UNKNOWN if is_array(kind) else part

    def _with_reference(self, part: Any) -> Any:
        """Return ``part`` as it is sent. A container becomes a reference, and is registered if it is new."""
        kind = type(part)
        if kind is tuple and any(map(_may_contain, set(map(type, part)))):
            return tuple(map(self._with_reference, part))
        if not isinstance(part, CONTAINERS):
            return part
        number = self._numbers.get(id(part))
        if number is None:
            if not _is_shareable(part):
                return part
            number = self._numbers[id(part)] = self._count
            self._count += 1
            self._entries[number] = _Entry(part, None)
            self._new.append(number)
        return ContainerReference(number)


def _may_contain(kind: type) -> bool:
    return kind is tuple or issubclass(kind, CONTAINERS)


def _is_shareable(item: Any) -> bool:
    """Return whether a container can be shared.

    Keys must be plain, because other keys would have to be compared.
    """
    # A larger container would make each request slow, because its content is compared for each.
    if len(item) > MAX_ELEMENTS:
        return False
    keys: Iterable[Any] = item if isinstance(item, (dict, set)) else ()
    return all(
        type(key) in _PLAIN_KEYS
        or (type(key) is tuple and all(type(part) in _PLAIN_KEYS for part in cast("tuple[Any, ...]", key)))
        for key in keys
    )


def _references(parts: list[Any], index: int) -> int:
    return getrefcount(parts[index])


_fresh: list[Any] = [[]]
# The reference count, as `described` measures it, of a container that only one other references.
_FRESH = _references(list(_fresh), 0)

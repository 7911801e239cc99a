"""In the program's process: its containers of which the test holds copies. See ``containers``."""

from __future__ import annotations

from collections.abc import Iterable
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
    kind_of,
    make,
    refill,
)
from whetstone.judge.values import is_array

_UNKNOWN = object()
_PLAIN_KEYS = frozenset({str, int, float, bool, bytes, type(None)})


@dataclass(slots=True)
class _Entry:
    container: Any
    before: Any
    """What it held when the test last heard of it."""


class HeldContainers:
    """The containers by number, with what the test knows of each."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._numbers: dict[int, int] = {}
        self._new: list[int] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def placed(self, message: list[Any]) -> list[Any]:
        """An operation's message with the containers themselves in the place of what stands for them."""
        if message[0] == "call":
            operation, target, args, kwargs = message
            given = {key: self._container(value) for key, value in kwargs.items()}
            return [operation, target, list(map(self._container, args)), given]
        return list(map(self._container, message))

    def described(self, parent: Any) -> Any:
        """``parent``, with what stands for each container in it that something else holds as well.

        Such a container is part of the program's state. One that only ``parent`` holds was made to be
        handed out, and crosses by value.
        """
        held = parent if type(parent) is tuple else content(parent)
        parts: list[Any] = list(held) if type(parent) is tuple else elements(held)
        if not any(map(_may_hold, set(map(type, parts)))):
            return parent
        named: list[Any] = []
        for index in range(len(parts)):
            shared = _references(parts, index) > _FRESH
            part = parts[index]
            if not _may_hold(type(part)):
                named.append(part)
            elif shared or id(part) in self._numbers:
                named.append(self._named(part))
            else:
                named.append(self.described(part))
        if type(parent) is tuple:
            return tuple(named)
        made = make(kind_of(parent))
        refill(made, dict(zip(held, named, strict=True)) if type(held) is dict else named)
        return made

    def changes(self) -> list[Any]:
        """``[nodes, forgotten]``: what the test does not know yet, and the numbers that mean nothing now.

        A node is a number, the kind of container if it is new, and the difference to what the test knows.
        """
        forgotten = [number for number, entry in self._entries.items() if not _can_be_held(entry.container)]
        self.forget(forgotten)
        nodes: list[list[Any]] = []
        for number, entry in list(self._entries.items()):
            now = content(entry.container)
            if entry.before is not None and not is_same(now, entry.before):
                nodes.append([number, None, difference(now, entry.before, self._named)])
                entry.before = self._told(now)
        while self._new:
            entry = self._entries[number := self._new.pop()]
            now, kind = content(entry.container), kind_of(entry.container)
            nodes.append([number, kind, difference(now, content(make(kind)), self._named)])
            entry.before = self._told(now)
        return [nodes, forgotten]

    def apply(self, released: list[int], changes: list[Any]) -> None:
        """Do what the test did to its copies, and forget those that it holds no more."""
        self.forget(released)
        for number, change in changes:
            entry = self._entries.get(number)
            if entry is not None:
                now = combined(entry.before, change, self._container)
                refill(entry.container, now)
                # A container of the test's becomes one of the program's here: the test is told of it.
                entry.before = self._told(content(entry.container))

    def forget(self, numbers: Iterable[int]) -> None:
        """These containers cross by value from here on."""
        for number in numbers:
            entry = self._entries.pop(number, None)
            if entry is not None:
                del self._numbers[id(entry.container)]

    def forget_all(self) -> list[int]:
        """Start over; the numbers that mean nothing now."""
        forgotten = list(self._entries)
        self.forget(forgotten)
        self._new.clear()
        return forgotten

    def _container(self, part: Any) -> Any:
        if type(part) is tuple and any(type(each) in (Held, tuple) for each in part):
            return tuple(map(self._container, part))
        return self._entries[part.number].container if type(part) is Held else part

    def _told(self, now: Any) -> Any:
        """A content as what the test knows: what may change unseen, it does not."""
        if type(now) is dict:
            return {key: self._settled(part) for key, part in cast("dict[Any, Any]", now).items()}
        return [self._settled(part) for part in cast("list[Any]", now)] if type(now) is list else now

    def _settled(self, part: Any) -> Any:
        kind = type(part)
        if kind in _PLAIN_KEYS:
            return part
        if issubclass(kind, CONTAINERS):
            return part if id(part) in self._numbers else _UNKNOWN
        if issubclass(kind, tuple):
            inside = tuple.__iter__(cast("tuple[Any, ...]", part))
            return part if all(self._settled(each) is each for each in inside) else _UNKNOWN
        return _UNKNOWN if is_array(kind) else part

    def _named(self, part: Any) -> Any:
        """What stands for ``part`` in a message: a number for a container, which is then held."""
        kind = type(part)
        if kind is tuple and any(map(_may_hold, set(map(type, part)))):
            return tuple(map(self._named, part))
        if not isinstance(part, CONTAINERS):
            return part
        number = self._numbers.get(id(part))
        if number is None:
            if not _can_be_held(part):
                return part
            number = self._numbers[id(part)] = self._count
            self._count += 1
            self._entries[number] = _Entry(part, None)
            self._new.append(number)
        return Held(number)


def _may_hold(kind: type) -> bool:
    return kind is tuple or issubclass(kind, CONTAINERS)


def _can_be_held(item: Any) -> bool:
    """Whether each part of a container has a plain place: keys that are objects would have to be compared."""
    if len(item) > MAX_ELEMENTS:
        return False
    keys: Iterable[Any] = item if isinstance(item, (dict, set)) else ()
    return all(type(key) in _PLAIN_KEYS or _is_plain(key) for key in keys)


def _is_plain(key: Any) -> bool:
    return type(key) is tuple and all(type(part) in _PLAIN_KEYS for part in key)


def _references(parts: list[Any], index: int) -> int:
    return getrefcount(parts[index])


_fresh: list[Any] = [[]]
_FRESH = _references(list(_fresh), 0)
"""References to a container that only one other holds, as ``described`` counts them."""

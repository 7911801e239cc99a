"""Mutable containers that belong to the program, of which the test holds copies: what both sides share.

Reading ``shop.items`` gives the test a plain dict. So that ``shop.items["pen"] = 3`` still reaches the
program, each side remembers by number which container of the program's a copy stands for, and what it held
when both last agreed. With every request go the changes of the test, with every reply those of the program;
a copy changes at no other time. A change is described by the difference, so that what the test left alone
stays the very object that the program put there.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from itertools import takewhile
from operator import is_
from typing import Any, cast

from whetstone.judge.set_order import in_one_order
from whetstone.judge.values import WireError

CONTAINERS = (list, dict, set, bytearray, deque)
MAX_ELEMENTS = 1_000_000
"""What all containers that the test holds at a time may hold together; more cross by value alone."""

_FACTORIES: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (list, dict, set, int, float, str, bool, tuple, deque, Counter)
}
_MAKE: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (list, dict, set, bytearray, OrderedDict, Counter)
}


class Held:
    """Stands in a message for a container that both sides know, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Kept:
    """Stands for the value that a dict has under its key already."""


KEPT = Kept()


def kind_of(item: Any) -> str:
    """What ``make`` needs to make an empty container like this one."""
    if isinstance(item, defaultdict):
        factory = getattr(cast("defaultdict[Any, Any]", item).default_factory, "__name__", "")
        known = _FACTORIES.get(factory) is cast("defaultdict[Any, Any]", item).default_factory
        return f"defaultdict {factory}" if known else "dict"
    if isinstance(item, deque):
        longest = cast("deque[Any]", item).maxlen
        return "deque" if longest is None else f"deque {longest}"
    bases = (OrderedDict, Counter, dict, list, set, bytearray)
    return next(base.__name__ for base in bases if isinstance(item, base))


def make(kind: str) -> Any:
    """An empty container, of a closed list of types. Raises WireError for anything else."""
    name, _, detail = kind.partition(" ")
    if name in _MAKE and not detail:
        return _MAKE[name]()
    if name == "defaultdict" and detail in _FACTORIES:
        return defaultdict(_FACTORIES[detail])
    if name == "deque" and (not detail or (detail.isascii() and detail.isdecimal() and len(detail) < 10)):
        return deque(maxlen=int(detail) if detail else None)
    raise WireError("an unknown kind of container")


def content(item: Any) -> Any:
    """What a container holds now: a list, a dict, a set or bytes, read as the builtin type reads it."""
    if isinstance(item, dict):
        return dict(list(dict.items(cast("dict[Any, Any]", item))))
    if isinstance(item, set):
        return set(set.__iter__(cast("set[Any]", item)))
    if isinstance(item, bytearray):
        return bytes(bytearray.__getitem__(item, slice(None)))
    if isinstance(item, deque):
        return list(deque.__iter__(cast("deque[Any]", item)))
    return cast("list[Any]", list.__getitem__(item, slice(None)))


def elements(held: Any) -> list[Any]:
    """Those parts of a content which may be containers themselves."""
    if type(held) is dict:
        return list(cast("dict[Any, Any]", held).values())
    return cast("list[Any]", held) if type(held) is list else []


def is_same(now: Any, before: Any) -> bool:
    """Whether two contents hold the same objects, in the same order: for a set, that of a message."""
    if len(now) != len(before):
        return False
    if type(now) is list:
        return all(map(is_, now, before))
    if type(now) is dict:
        pairs = cast("dict[Any, Any]", now), cast("dict[Any, Any]", before)
        return all(map(is_, *pairs)) and all(map(is_, pairs[0].values(), pairs[1].values()))
    if type(now) is set:
        return all(map(is_, in_one_order(list(cast("set[Any]", now))), in_one_order(list(before))))
    return now == before


def difference(now: Any, before: Any, name: Callable[[Any], Any]) -> Any:
    """What turns ``before`` into ``now``; ``name`` gives what stands for a part in a message."""
    if type(now) is list:
        first = sum(1 for _ in takewhile(bool, map(is_, now, before)))
        rest = min(len(now), len(before)) - first
        behind = takewhile(bool, map(is_, reversed(now[first:]), reversed(before[first:])))
        last = min(sum(1 for _ in behind), rest)
        return [first, last, [name(part) for part in now[first : len(now) - last]]]
    if type(now) is dict:
        missing = object()
        parts = {id(key): part for key, part in cast("dict[Any, Any]", before).items()}
        return {
            key: KEPT if parts.get(id(key), missing) is part else name(part)
            for key, part in cast("dict[Any, Any]", now).items()
        }
    return now


def combined(before: Any, change: Any, value: Callable[[Any], Any]) -> Any:
    """The content that ``change`` makes of ``before``; ``value`` gives what a part stands for.

    Raises WireError on nonsense.
    """
    match before, change:
        case list(), [int() as first, int() as last, list() as parts] if (
            type(first) is type(last) is int and min(first, last) >= 0 and first + last <= len(before)
        ):
            end = len(before) - last
            return before[:first] + [value(part) for part in cast("list[Any]", parts)] + before[end:]
        case dict(), dict():
            known, changed = cast("dict[Any, Any]", before), cast("dict[Any, Any]", change)
            if any(part is KEPT and key not in known for key, part in changed.items()):
                raise WireError("malformed changes")
            keys = {key: key for key in known}
            return {
                keys.get(key, key): known[key] if part is KEPT else value(part)
                for key, part in changed.items()
            }
        case (set(), set()) | (bytes(), bytes()):
            return change
        case _:
            raise WireError("malformed changes")


def refill(item: Any, now: Any) -> None:
    """Give a container another content, by the methods of its builtin type."""
    if isinstance(item, dict):
        kind = OrderedDict if isinstance(item, OrderedDict) else dict  # which keeps an order beside
        kind.clear(cast("OrderedDict[Any, Any]", item))
        kind.update(cast("OrderedDict[Any, Any]", item), now)
    elif isinstance(item, set):
        set.clear(cast("set[Any]", item))
        set.update(cast("set[Any]", item), now)
    elif isinstance(item, deque):
        deque.clear(cast("deque[Any]", item))
        deque.extend(cast("deque[Any]", item), now)
    elif isinstance(item, bytearray):
        bytearray.__setitem__(item, slice(None), now)
    else:
        list.__setitem__(cast("list[Any]", item), slice(None), now)

"""Mutable containers of the program that the test has copies of: the code that both processes share.

Reading ``shop.items`` gives the test a plain dict, but ``shop.items["pen"] = 3`` must still reach the
program. So each process remembers by number which container of the program a copy stands for, and its last
content that both knew. Each request carries the changes of the test, and each reply those of the program. A
copy changes at no other time.

A change is sent as a difference. So an element that the test did not change remains the same object that the
program put there.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from itertools import takewhile
from operator import is_
from typing import Any, cast

from whetstone.judge.set_order import in_canonical_order
from whetstone.judge.values import WireError

CONTAINERS = (list, dict, set, bytearray, deque)
# The limit of elements of all containers that the test has copies of. Further ones cross by value only.
MAX_ELEMENTS = 1_000_000

_FACTORIES: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (list, dict, set, int, float, str, bool, tuple, deque, Counter)
}
_MAKE: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (list, dict, set, bytearray, OrderedDict, Counter)
}


class ContainerReference:
    """Stands in a message for a container that both processes know, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class UnchangedValue:
    """Stands for the value that a dict already has under its key."""


KEPT = UnchangedValue()


def kind_of(item: Any) -> str:
    """Return the description from which ``make`` creates an empty container like this one."""
    if isinstance(item, defaultdict):
        factory = getattr(cast("defaultdict[Any, Any]", item).default_factory, "__name__", "")
        is_known = _FACTORIES.get(factory) is cast("defaultdict[Any, Any]", item).default_factory
        return f"defaultdict {factory}" if is_known else "dict"
    if isinstance(item, deque):
        longest = cast("deque[Any]", item).maxlen
        return "deque" if longest is None else f"deque {longest}"
    bases = (OrderedDict, Counter, dict, list, set, bytearray)
    return next(base.__name__ for base in bases if isinstance(item, base))


def make(kind: str) -> Any:
    """Return an empty container of a closed list of types. Raises WireError for any other description."""
    name, _, detail = kind.partition(" ")
    if name in _MAKE and not detail:
        return _MAKE[name]()
    if name == "defaultdict" and detail in _FACTORIES:
        return defaultdict(_FACTORIES[detail])
    if name == "deque" and (not detail or (detail.isascii() and detail.isdecimal() and len(detail) < 10)):
        return deque(maxlen=int(detail) if detail else None)
    raise WireError("an unknown kind of container")


def content(item: Any) -> Any:
    """Return the content of a container as a list, a dict, a set or bytes, as its builtin type reads it."""
    if isinstance(item, dict):
        return dict(list(dict.items(cast("dict[Any, Any]", item))))
    if isinstance(item, set):
        return set(set.__iter__(cast("set[Any]", item)))
    if isinstance(item, bytearray):
        return bytes(bytearray.__getitem__(item, slice(None)))
    if isinstance(item, deque):
        return list(deque.__iter__(cast("deque[Any]", item)))
    return cast("list[Any]", list.__getitem__(item, slice(None)))


def elements(current_content: Any) -> list[Any]:
    """Return the parts of a content that may be containers themselves."""
    if type(current_content) is dict:
        return list(cast("dict[Any, Any]", current_content).values())
    return cast("list[Any]", current_content) if type(current_content) is list else []


def is_same(now: Any, before: Any) -> bool:
    """Return whether two contents have the same objects in the same order.

    Sets have the order of a message.
    """
    if len(now) != len(before):
        return False
    if type(now) is list:
        return all(map(is_, now, before))
    if type(now) is dict:
        pairs = cast("dict[Any, Any]", now), cast("dict[Any, Any]", before)
        return all(map(is_, *pairs)) and all(map(is_, pairs[0].values(), pairs[1].values()))
    if type(now) is set:
        return all(
            map(is_, in_canonical_order(list(cast("set[Any]", now))), in_canonical_order(list(before)))
        )
    return now == before


def difference(now: Any, before: Any, name: Callable[[Any], Any]) -> Any:
    """Return the change from ``before`` to ``now``. ``name`` returns what stands for a part in a message."""
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


def apply_difference(before: Any, change: Any, value: Callable[[Any], Any]) -> Any:
    """Return the content after ``change`` is applied to ``before``. ``value`` returns the object for a part.

    Raises WireError for a malformed change.
    """
    match before, change:
        case list(), [int() as first, int() as last, list() as parts] if (
            type(first) is type(last) is int and min(first, last) >= 0 and first + last <= len(before)
        ):
            end = len(before) - last
            return before[:first] + [value(part) for part in cast("list[Any]", parts)] + before[end:]
        case dict(), dict():
            previous, changed = cast("dict[Any, Any]", before), cast("dict[Any, Any]", change)
            if any(part is KEPT and key not in previous for key, part in changed.items()):
                raise WireError("malformed changes")
            keys = {key: key for key in previous}
            return {
                keys.get(key, key): previous[key] if part is KEPT else value(part)
                for key, part in changed.items()
            }
        case (set(), set()) | (bytes(), bytes()):
            return change
        case _:
            raise WireError("malformed changes")


def refill(item: Any, now: Any) -> None:
    """Replace the content of a container with the methods of its builtin type."""
    if isinstance(item, dict):
        # An OrderedDict keeps its order in a list of its own, which methods of dict do not update.
        kind = OrderedDict if isinstance(item, OrderedDict) else dict
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

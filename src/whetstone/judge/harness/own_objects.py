"""In the testing process: objects of the test's own classes that the program was given, and what it may do.

The program can read and set public data, and use operators and methods of the class. It cannot reach
names with an underscore, and so no class, globals or frames; it cannot put something of its own in
place of a method, which the test may use to decide.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import islice
from typing import Any

from whetstone.judge.values import WireError

_MAX_ITEMS = 1_000_000


class OwnObjects:
    """The objects by number; the same object always has the same one."""

    def __init__(self, module: str) -> None:
        """``module`` is where the test's classes say that they were defined."""
        self._module = module
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def owns(self, value: object) -> bool:
        """Whether a value is an instance of a class that the test code defines."""
        return type.__getattribute__(type(value), "__module__") == self._module

    def number(self, value: object) -> int:
        """The number of an object, which is kept alive by it."""
        known = self._numbers.get(id(value))
        if known is None:
            known = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return known

    def object(self, number: int) -> Any:
        """The object behind a number. Raises WireError for one that was never given out."""
        if not 0 <= number < len(self._objects):
            raise WireError("an unknown object")
        return self._objects[number]

    def do(self, operation: str, number: int, arguments: list[Any]) -> Any:
        """Do what the program asks for. Raises WireError for what may not be asked at all."""
        target = self.object(number)
        if operation not in _OPERATIONS:
            raise WireError("an unknown operation")
        return _OPERATIONS[operation](target, *arguments)


def _public(name: object) -> str:
    if type(name) is not str or name[:1] == "_":
        raise AttributeError(f"a program cannot reach the name {name!r} of the test's objects")
    return name


def _get(target: Any, name: object) -> Any:
    return getattr(target, _public(name))


def _set(target: Any, name: object, value: Any) -> None:
    if callable(getattr(type(target), _public(name), None)) or callable(value):
        raise AttributeError(f"a program cannot put something in place of {name!r} of the test's objects")
    setattr(target, _public(name), value)


def _items(target: Any) -> list[Any]:
    items = list(islice(iter(target), _MAX_ITEMS + 1))
    if len(items) > _MAX_ITEMS:
        raise OverflowError(f"more than {_MAX_ITEMS} items")
    return items


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "getattr": _get,
    "setattr": _set,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "len": len,
    "bool": bool,
    "items": _items,
    "contains": operator.contains,
    "eq": operator.eq,
    "lt": operator.lt,
    "str": str,
    "repr": repr,
}

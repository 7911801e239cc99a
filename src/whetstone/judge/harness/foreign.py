"""In the program's process: stand-ins for objects of classes that the test code defines (a ListNode, say).

What the program does with one is asked of the test's process, where only public names can be read
and only data can be set: what the test itself will do with its object stays the test's decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Ask = Callable[..., Any]
"""Has the test's process do something with an object of its own; raises what that raises."""


class TestObject:
    """One object of the test's, by its number."""

    __slots__ = ("_ask", "_number")

    def __init__(self, ask: Ask, number: int) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        return _do(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _do(self, "setattr", name, value)

    def __getitem__(self, key: Any) -> Any:
        return _do(self, "getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _do(self, "setitem", key, value)

    def __len__(self) -> int:
        return _do(self, "len")

    def __bool__(self) -> bool:
        return _do(self, "bool")

    def __iter__(self) -> Iterator[Any]:
        return iter(_do(self, "items"))

    def __contains__(self, item: Any) -> bool:
        return _do(self, "contains", item)

    def __eq__(self, other: object) -> bool:
        return self is other or bool(_do(self, "eq", other))

    def __lt__(self, other: Any) -> bool:
        return _do(self, "lt", other)

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_number"))

    def __str__(self) -> str:
        return _do(self, "str")

    def __repr__(self) -> str:
        return _do(self, "repr")


def number_of(value: TestObject) -> int:
    """The number by which the test's process knows its object."""
    return object.__getattribute__(value, "_number")


def _do(target: TestObject, operation: str, *arguments: Any) -> Any:
    return object.__getattribute__(target, "_ask")(operation, number_of(target), *arguments)

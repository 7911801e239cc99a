"""In the program's process: stand-ins for objects of classes that the test code defines (a ListNode, say).

What the program does with one is asked of the test's process, where only public names can be read and only
data that is there can be set: what the test itself will do with its object stays the test's decision.
Names that the object does not have (``node.visited = True``) are the program's own, and live here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Ask = Callable[..., Any]
"""Has the test's process do something with an object of its own; raises what that raises."""


class TestObject:
    """One object of the test's, by its number."""

    __slots__ = ("_added", "_ask", "_name", "_number", "_traits")

    def __init__(self, ask: Ask, number: int, name: str, traits: tuple[str, ...]) -> None:
        """``name`` is that of its class; ``traits`` are the operations that it has besides attributes."""
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_traits", frozenset(traits))
        object.__setattr__(self, "_added", {})

    def __getattr__(self, name: str) -> Any:
        added: dict[str, Any] = object.__getattribute__(self, "_added")
        return added[name] if name in added else _do(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not _do(self, "setattr", name, value):
            object.__getattribute__(self, "_added")[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del object.__getattribute__(self, "_added")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: Any) -> Any:
        return _do(self, "getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _do(self, "setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        _do(self, "delitem", key)

    def __len__(self) -> int:
        return _do(self, "len")

    def __bool__(self) -> bool:
        return not _has(self, "bool") or _do(self, "bool")

    def __iter__(self) -> Iterator[Any]:
        return iter(_do(self, "items"))

    def __contains__(self, item: Any) -> bool:
        return _do(self, "contains", item)

    def __eq__(self, other: object) -> bool:
        return self is other or _binary(self, "eq", other)

    def __lt__(self, other: Any) -> Any:
        return _binary(self, "lt", other)

    def __le__(self, other: Any) -> Any:
        return _binary(self, "le", other)

    def __gt__(self, other: Any) -> Any:
        return _binary(self, "gt", other)

    def __ge__(self, other: Any) -> Any:
        return _binary(self, "ge", other)

    def __add__(self, other: Any) -> Any:
        return _binary(self, "add", other)

    def __sub__(self, other: Any) -> Any:
        return _binary(self, "sub", other)

    def __mul__(self, other: Any) -> Any:
        return _binary(self, "mul", other)

    def __hash__(self) -> int:
        return _do(self, "hash") if _has(self, "hash") else hash(number_of(self))

    def __str__(self) -> str:
        return _do(self, "str") if _has(self, "str") else repr(self)

    def __repr__(self) -> str:
        return _do(self, "repr") if _has(self, "repr") else f"<{_name(self)} object>"


class CallableTestObject(TestObject):
    """One that can be called."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _do(self, "call", list(args), kwargs)


def stand_in(ask: Ask, number: int, name: str, traits: tuple[str, ...]) -> TestObject:
    """The stand-in for an object of the test's: see ``TestObject``."""
    return (CallableTestObject if "call" in traits else TestObject)(ask, number, name, traits)


def number_of(value: TestObject) -> int:
    """The number by which the test's process knows its object."""
    return object.__getattribute__(value, "_number")


def _name(target: TestObject) -> str:
    return object.__getattribute__(target, "_name")


def _has(target: TestObject, operation: str) -> bool:
    return operation in object.__getattribute__(target, "_traits")


def _binary(target: TestObject, operation: str, other: Any) -> Any:
    return _do(target, operation, other) if _has(target, operation) else NotImplemented


def _do(target: TestObject, operation: str, *arguments: Any) -> Any:
    if not _has(target, operation):
        raise TypeError(f"unsupported operation on an object of type {_name(target)!r}: {operation}")
    return object.__getattribute__(target, "_ask")(operation, number_of(target), *arguments)

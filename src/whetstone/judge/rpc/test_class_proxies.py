"""In the program's process: proxies for objects of classes that the test code defines (such as a ListNode).

The test process does each operation on such an object. It reads only public names and sets only existing
data, so the test alone decides how it uses its object. Names that the object does not have (``node.visited =
True``) belong to the program, and are stored here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Ask = Callable[..., Any]
"""Lets the test process do an operation on one of its objects. Raises the exception of the operation."""


class TestObject:
    """One object of the test, by its number."""

    __slots__ = ("_added", "_ask", "_name", "_number", "_traits")

    def __init__(self, ask: Ask, number: int, name: str, traits: tuple[str, ...]) -> None:
        """``name`` is the name of its class; ``traits`` are its operations other than attribute access."""
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_traits", frozenset(traits))
        object.__setattr__(self, "_added", {})

    def __getattr__(self, name: str) -> Any:
        added: dict[str, Any] = object.__getattribute__(self, "_added")
        return added[name] if name in added else _request(self, "getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not _request(self, "setattr", name, value):
            object.__getattribute__(self, "_added")[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del object.__getattribute__(self, "_added")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __bool__(self) -> bool:
        return not _supports(self, "bool") or _request(self, "bool")

    def __iter__(self) -> Iterator[Any]:
        return iter(_request(self, "items"))

    def __eq__(self, other: object) -> bool:
        return self is other or _binary(self, "eq", other)

    def __hash__(self) -> int:
        return _request(self, "hash") if _supports(self, "hash") else hash(number_of(self))

    def __str__(self) -> str:
        return _request(self, "str") if _supports(self, "str") else repr(self)

    def __repr__(self) -> str:
        return _request(self, "repr") if _supports(self, "repr") else f"<{_name(self)} object>"


def _add_special_methods() -> None:
    """Give proxies the special methods that only forward an operation, which has the name of the method."""
    for name in ("getitem", "setitem", "delitem", "len", "contains"):
        _add_special_method(name, _request)
    for name in ("lt", "le", "gt", "ge", "add", "sub", "mul"):
        _add_special_method(name, _binary)


def _add_special_method(operation: str, forward: Callable[..., Any]) -> None:
    def method(target: TestObject, *arguments: Any) -> Any:
        return forward(target, operation, *arguments)

    setattr(TestObject, f"__{operation}__", method)


class CallableTestObject(TestObject):
    """A callable object of the test."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _request(self, "call", list(args), kwargs)


def make_proxy(ask: Ask, number: int, name: str, traits: tuple[str, ...]) -> TestObject:
    """Return the proxy for an object of the test; see ``TestObject``."""
    return (CallableTestObject if "call" in traits else TestObject)(ask, number, name, traits)


def number_of(value: TestObject) -> int:
    """Return the number by which the test process identifies its object."""
    return object.__getattribute__(value, "_number")


def _name(target: TestObject) -> str:
    return object.__getattribute__(target, "_name")


def _supports(target: TestObject, operation: str) -> bool:
    return operation in object.__getattribute__(target, "_traits")


def _binary(target: TestObject, operation: str, other: Any) -> Any:
    return _request(target, operation, other) if _supports(target, operation) else NotImplemented


def _request(target: TestObject, operation: str, *arguments: Any) -> Any:
    if not _supports(target, operation):
        raise TypeError(f"unsupported operation on an object of type {_name(target)!r}: {operation}")
    return object.__getattribute__(target, "_ask")(operation, number_of(target), *arguments)


_add_special_methods()

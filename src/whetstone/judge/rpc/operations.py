"""In the program's process: the operations on its objects that the test process requests by name."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from itertools import islice
from typing import Any

MAX_ITEMS = 1_000_000


def _call(target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return target(*args, **kwargs)


def _items(target: Any) -> list[Any]:
    items = list(islice(iter(target), MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise OverflowError(f"more than {MAX_ITEMS} items")
    return items


def _reversed(target: Any) -> list[Any]:
    return _items(reversed(target))


def _enter(target: Any) -> Any:
    return type(target).__enter__(target)


def _exit(target: Any) -> None:
    type(target).__exit__(target, None, None, None)


def _ping(nonce: bytes) -> bytes:
    return nonce


def _reflected(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operator whose left operand comes from the test."""

    def operate(target: Any, other: Any) -> Any:
        return operation(other, target)

    return operate


def _in_place(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an in-place operator. Its result is empty if the left operand is still the same object."""

    def operate(target: Any, other: Any) -> Any:
        result = operation(target, other)
        return [] if result is target else [result]

    return operate


# Operators by the names of their special methods, without underscores.
COMPARISONS = ("lt", "le", "gt", "ge")
UNARY = ("neg", "pos", "invert", "abs")
BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")
REFLECTED = ("radd", "rsub", "rmul", "rtruediv")
IN_PLACE = ("iadd", "isub", "imul", "itruediv")


def _operator(name: str) -> Callable[..., Any]:
    return getattr(operator, f"__{name}__")


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": _call,
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "len": len,
    "bool": bool,
    "str": str,
    "repr": repr,
    "format": format,
    "items": _items,
    "reversed": _reversed,
    "next": next,
    "enter": _enter,
    "exit": _exit,
    "ping": _ping,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "int": int,
    "float": float,
    "round": round,
    **{name: _operator(name) for name in (*COMPARISONS, *UNARY, *BINARY)},
    **{name: _reflected(_operator(name[1:])) for name in REFLECTED},
    **{name: _in_place(_operator(name)) for name in IN_PLACE},
}

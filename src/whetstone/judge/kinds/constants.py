"""What constant expressions of test code stand for: literals, and little sums of them (``3 * 5 * 7``).

Evaluated in the judge's own process, from the problem alone, so what a result may take is bounded: test code
that does more has a process of its own.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection
from typing import Any, cast

_MOST_BITS = 4096
"""Of an integer that is reckoned with."""
_MOST_REPEATED = 64 << 10
"""Characters of a text, or items of a list, that are made by repeating or joining."""
_SCALARS = frozenset((bool, int, float, complex, str, bytes, type(None)))
_TEXTS = frozenset((str, bytes, list, tuple))
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_MADE: dict[str, Callable[..., Any]] = {"set": set, "frozenset": frozenset, "tuple": tuple, "list": list}


def constant(node: ast.expr, taken: Collection[str] = ()) -> Any:
    """The value. ``taken`` are names that are not Python's own there.

    Raises ValueError for what is no constant or takes too much, and what Python raises in reckoning.
    """
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _reckoned(node, taken)


def _reckoned(node: ast.expr, taken: Collection[str]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [_reckoned(item, taken) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_reckoned(item, taken) for item in items)
        case ast.Set(elts=items):
            return {_reckoned(item, taken) for item in items}
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_reckoned(_present(key), taken): _reckoned(value, taken) for key, value in pairs}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _number(_reckoned(operand, taken))
            return -value if isinstance(sign, ast.USub) else +value
        case ast.BinOp(left=left, op=op, right=right):
            return _applied(op, _reckoned(left, taken), _reckoned(right, taken))
        case ast.Call(func=ast.Name(id=name), args=items, keywords=[]) if name in _MADE.keys() - taken:
            return _MADE[name](*(_reckoned(item, taken) for item in items))
        case _:
            raise ValueError("no constant")


def _present(key: ast.expr | None) -> ast.expr:
    if key is None:
        raise ValueError("no constant")
    return key


def _applied(op: ast.operator, left: Any, right: Any) -> Any:
    """``left op right``, where it cannot take long."""
    apply = _OPERATORS.get(type(op))
    if apply is None:
        raise ValueError("no constant")
    texts = {type(left), type(right)} & _TEXTS
    if not texts:
        _number(left)
        exponent = _number(right)
        whole = type(left) is int and type(exponent) is int
        if whole and apply is operator.pow and left.bit_length() * exponent > _MOST_BITS:
            raise ValueError("too large")
        return _number(apply(left, exponent))
    if apply is operator.add and type(left) is type(right):
        made = len(left) + len(right)
    elif apply is operator.mul and int in (type(left), type(right)):
        text, times = (right, left) if type(left) is int else (left, right)
        if not isinstance(text, (str, bytes)) and not _SCALARS.issuperset(map(type, text)):
            raise ValueError("no constant")
        made = len(text) * max(times, 0)
    else:
        raise ValueError("no constant")
    if made > _MOST_REPEATED:
        raise ValueError("too large")
    return apply(left, right)


def _number(value: Any) -> Any:
    """A number that may be reckoned with."""
    if (
        not isinstance(value, (int, float, complex)) or value != value
    ):  # a nan equals nothing, itself included
        raise ValueError("no number")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ValueError("too large")
    return cast("Any", value)

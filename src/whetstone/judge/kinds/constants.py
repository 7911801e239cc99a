"""Evaluate constant expressions of test code: literals and short calculations such as ``3 * 5 * 7``.

The judge evaluates them in its own process, from the problem alone. So the size of each result is limited.
Test code with larger calculations runs in a test process.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection
from typing import Any, cast

# The largest operand and result of integer arithmetic.
_MAX_INTEGER_BITS = 4096
# The largest length of a text or list that is made by repetition or concatenation.
_MAX_SEQUENCE_LENGTH = 64 << 10
_SCALARS = frozenset((bool, int, float, complex, str, bytes, type(None)))
_SEQUENCES = frozenset((str, bytes, list, tuple))
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "set": set,
    "frozenset": frozenset,
    "tuple": tuple,
    "list": list,
}


def constant(node: ast.expr, taken: Collection[str] = ()) -> Any:
    """Return the value of an expression. ``taken``: names that do not have their builtin meaning there.

    Raises ValueError for an expression that is not constant or whose value is too large, and the errors of
    Python's operators.
    """
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _evaluate(node, taken)


def _evaluate(node: ast.expr, taken: Collection[str]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [_evaluate(item, taken) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_evaluate(item, taken) for item in items)
        case ast.Set(elts=items):
            return {_evaluate(item, taken) for item in items}
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_evaluate(_dict_key(key), taken): _evaluate(value, taken) for key, value in pairs}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _check_number(_evaluate(operand, taken))
            return -value if isinstance(sign, ast.USub) else +value
        case ast.BinOp(left=left, op=op, right=right):
            return _apply(op, _evaluate(left, taken), _evaluate(right, taken))
        case ast.Call(func=ast.Name(id=name), args=items, keywords=[]) if (
            name in _CONSTRUCTORS.keys() - taken
        ):
            return _CONSTRUCTORS[name](*(_evaluate(item, taken) for item in items))
        case _:
            raise ValueError("not a constant")


def _dict_key(key: ast.expr | None) -> ast.expr:
    if key is None:
        raise ValueError("not a constant")
    return key


def _apply(op: ast.operator, left: Any, right: Any) -> Any:
    """Return ``left op right``. Raises ValueError if the operation could take long."""
    apply = _OPERATORS.get(type(op))
    if apply is None:
        raise ValueError("not a constant")
    texts = {type(left), type(right)} & _SEQUENCES
    if not texts:
        _check_number(left)
        exponent = _check_number(right)
        whole = type(left) is int and type(exponent) is int
        if whole and apply is operator.pow and left.bit_length() * exponent > _MAX_INTEGER_BITS:
            raise ValueError("too large")
        return _check_number(apply(left, exponent))
    if apply is operator.add and type(left) is type(right):
        length = len(left) + len(right)
    elif apply is operator.mul and int in (type(left), type(right)):
        text, times = (right, left) if type(left) is int else (left, right)
        # A repeated nested list repeats its contents, so its length would not limit its size.
        if not isinstance(text, (str, bytes)) and not _SCALARS.issuperset(map(type, text)):
            raise ValueError("not a constant")
        length = len(text) * max(times, 0)
    else:
        raise ValueError("not a constant")
    if length > _MAX_SEQUENCE_LENGTH:
        raise ValueError("too large")
    return apply(left, right)


def _check_number(value: Any) -> Any:
    """Return ``value``. Raises ValueError for a value that may not be an operand."""
    # A nan is refused: it is equal to no value, not even to itself.
    if not isinstance(value, (int, float, complex)) or value != value:
        raise ValueError("not a number")
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise ValueError("too large")
    return cast("Any", value)

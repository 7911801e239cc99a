"""Python values as text, including those without a JSON form: tuples, sets, complex numbers, bytes, inf, nan.

The text is a Python literal, as ``repr`` writes it, and may contain the names ``inf`` and ``nan``. Reading it
executes no code: only constants, containers and signs of numbers are valid.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from math import inf, nan
from typing import Any, cast

from whetstone.core.syntax import NotPython, parse_expression

_NAMES = {"inf": inf, "nan": nan, "Ellipsis": ...}
_SCALARS = (bool, int, float, str, bytes, type(None), type(...))
# Numbers and lists of them are JSON too, which is read twenty times as fast.
_NUMBERS = re.compile(r"[\[\]0-9.eE+\-, ]*")
_DECIMAL_BITS = 8192  # Python limits the conversion of longer integers from and to decimal


def write_literal(value: object) -> str:
    """Return the text of a value of builtin types. Raises ValueError for any other value.

    Subclasses, such as named tuples and Counters, are refused, because they have no literal.
    """
    if type(value) in _SCALARS:
        return hex(value) if type(value) is int and value.bit_length() > _DECIMAL_BITS else repr(value)
    if type(value) is complex:  # `repr` of a complex number loses the sign of a zero, and writes "infj"
        return f"complex({value.real!r}, {value.imag!r})"
    if type(value) is dict:
        pairs = cast("dict[object, object]", value).items()
        return "{" + ", ".join(f"{write_literal(k)}: {write_literal(v)}" for k, v in pairs) + "}"
    if type(value) not in (list, tuple, set, frozenset):
        raise ValueError(f"a value of type {type(value).__name__} has no literal")
    items = ", ".join(map(write_literal, cast("list[object]", value)))
    if type(value) is list:
        return f"[{items}]"
    if type(value) is tuple:
        return f"({items},)" if len(cast("tuple[object]", value)) == 1 else f"({items})"
    braces = f"{{{items}}}" if items else "set()"
    return f"frozenset({braces})" if type(value) is frozenset else braces


def read_literal(text: str) -> Any:
    """Return the value of a literal. Raises ValueError if the text is no literal."""
    if _NUMBERS.fullmatch(text):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass  # Python allows more than JSON, such as a trailing comma
    try:
        tree = parse_expression(text.strip())
    except NotPython as error:
        raise ValueError(f"not a Python literal: {error}") from None
    try:
        return _value(tree)
    except (TypeError, RecursionError) as error:  # an unhashable element, or too deep nesting
        raise ValueError(f"not a Python literal: {error}") from None


def _value(node: ast.expr) -> Any:
    reader = _READERS.get(type(node))
    if reader is None:
        raise ValueError(f"not a Python literal: {type(node).__name__}")
    return reader(node)


def _name(node: ast.Name) -> object:
    # No name is looked up, so a literal can never reach an object of the interpreter.
    if node.id not in _NAMES:
        raise ValueError(f"not a Python literal: the name `{node.id}`")
    return _NAMES[node.id]


def _signed(node: ast.UnaryOp) -> Any:
    operand = _value(node.operand)
    if type(operand) not in (int, float, complex) or not isinstance(node.op, ast.USub | ast.UAdd):
        raise ValueError("not a Python literal: an operator")
    return -operand if isinstance(node.op, ast.USub) else operand


def _complex(node: ast.BinOp) -> complex:
    """Return the value of ``1+2j``, the form that ``repr`` writes."""
    real, imaginary = _value(node.left), _value(node.right)
    if type(real) not in (int, float) or type(imaginary) is not complex or imaginary.real:
        raise ValueError("not a Python literal: an operator")
    if isinstance(node.op, ast.Add):
        return complex(real, imaginary.imag)
    if isinstance(node.op, ast.Sub):
        return complex(real, -imaginary.imag)
    raise ValueError("not a Python literal: an operator")


def _dict(node: ast.Dict) -> dict[Any, Any]:
    if any(key is None for key in node.keys):
        raise ValueError("not a Python literal: ** in a dict")
    return {_value(key): _value(item) for key, item in zip(node.keys, node.values, strict=True) if key}


def _call(node: ast.Call) -> Any:
    """Read ``set()``, ``frozenset()``, ``frozenset({…})`` and ``complex(…, …)``, which have no other form."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    items = [_value(argument) for argument in node.args]
    kinds = [type(item) for item in items]
    if name == "complex" and kinds == [float, float] and not node.keywords:
        return complex(*items)
    if name not in ("set", "frozenset") or node.keywords or kinds not in ([], [set]):
        raise ValueError("not a Python literal: a call")
    return (set if name == "set" else frozenset)(*items)


_READERS: dict[type[ast.expr], Callable[[Any], Any]] = {
    ast.Constant: lambda node: node.value,
    ast.Name: _name,
    ast.UnaryOp: _signed,
    ast.BinOp: _complex,
    ast.List: lambda node: [_value(item) for item in node.elts],
    ast.Tuple: lambda node: tuple(_value(item) for item in node.elts),
    ast.Set: lambda node: {_value(item) for item in node.elts},
    ast.Dict: _dict,
    ast.Call: _call,
}

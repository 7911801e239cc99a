"""Test code for HumanEval+ and MBPP+: the program and the reference get the same inputs and must agree.

The reference runs in the test process, so its results never reach the program. Agreement follows evalplus
26d6d00: equality of Python, a tolerance for floats, and special rules for some problems with several right
answers. Unlike there, a tolerance applies to floats at any depth and to no other values, and no input affects
the rule of the next.
"""

from __future__ import annotations

import ast
import math
from typing import Any, cast

from msgspec import Struct

from whetstone.core.problem import AssertTests
from whetstone.core.syntax import parse
from whetstone.core.toml_files import read_toml

_CODE = read_toml("whetstone.data.sources", "test_code.toml", dict[str, Any])
_RULE_OF = {function: rule for rule, functions in _CODE["functions"].items() for function in functions}
_TYPES_OF = {number: each["types"] for each in _CODE["shapes"] for number in each["problems"]}


class _PlusInputs(Struct, frozen=True):
    """The parts of the test code of ``plus_tests``. An input is a list of arguments."""

    entry_point: str
    reference: str
    base: list[Any]
    plus: list[Any]
    atol: float


def plus_tests(
    entry_point: str, reference: str, base: list[Any], plus: list[Any], atol: float
) -> AssertTests:
    """Return tests of two cases: the original inputs, and the added ones."""
    rule = _RULE_OF.get(entry_point, "same")
    setup = (
        f"ENTRY_POINT = {entry_point!r}\nATOL = {atol!r}\nREFERENCE = {reference!r}\n"
        f"BASE = {_literal(base)}\nPLUS = {_literal(plus)}\n"
        f"{_CODE['agreement']}{_CODE['rules'][rule]}{_CODE['run']}"
    )
    asserts = ["agree(candidate, BASE)", *(["agree(candidate, PLUS)"] if plus else [])]
    return AssertTests(setup=setup, asserts=asserts, entry_point=entry_point)


def plus_inputs(tests: AssertTests) -> _PlusInputs | None:
    """Return the arguments of ``plus_tests`` for its result; None for other tests."""
    found: dict[str, Any] = {}
    if tests.asserts and tests.asserts[0] == "agree(candidate, BASE)":
        for node in parse(tests.setup).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name.isupper():
                    found[name] = _value(node.value)
    if not found:
        return None
    return _PlusInputs(found["ENTRY_POINT"], found["REFERENCE"], found["BASE"], found["PLUS"], found["ATOL"])


def _literal(value: Any) -> str:
    """Return Python code for plain data. ``repr`` has no such form for infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return "float('nan')" if math.isnan(value) else "1e999" if value > 0 else "-1e999"
    # Evaluating the repr of a complex number loses the sign of a zero.
    if isinstance(value, complex):
        return f"complex({_literal(value.real)}, {_literal(value.imag)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, cast('list[Any]', value)))}]"
    if isinstance(value, tuple):
        return f"({''.join(_literal(item) + ', ' for item in cast('tuple[Any, ...]', value))})"
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return f"{{{', '.join(f'{_literal(key)}: {_literal(item)}' for key, item in items)}}}"
    return repr(value)


def _value(node: ast.expr) -> Any:
    """Return the value of an expression that ``_literal`` wrote."""
    match node:
        case ast.List(items):
            return [_value(item) for item in items]
        case ast.Tuple(items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys, values):
            return {_value(k): _value(v) for k, v in zip(keys, values, strict=True) if k is not None}
        case ast.Call(args=[real, imaginary]):
            return complex(_value(real), _value(imaginary))
        case ast.Call(args=[ast.Constant("nan")]):
            return math.nan
        case _:
            return ast.literal_eval(node)


def with_python_types(number: int, inputs: list[list[Any]]) -> list[Any]:
    """Return inputs of a problem of MBPP+ as Python values; in JSON they have lists and text only."""
    types = _TYPES_OF.get(number)
    if types is None:
        return inputs
    return [
        [_with_shape(types[min(i, len(types) - 1)], argument) for i, argument in enumerate(arguments)]
        for arguments in inputs
    ]


def _with_shape(shape: str, value: Any) -> Any:
    """Return the value in a shape. A value that already has it, or has none (a number), stays."""
    match shape:
        case "tuple":
            return _tuple(value)
        case "tuples":
            return [_tuple(item) for item in value] if isinstance(value, list) else value
        case "tuple of tuples":
            return _tuple(_with_shape("tuples", value))
        case "all tuples":
            return _tuples(value)
        case "values tuples":
            return {key: _tuple(item) for key, item in value.items()}
        case "sets":
            # evalplus reads other values than lists, and empty lists, as an empty dict.
            return [(set(item) or {}) if isinstance(item, list) else {} for item in value]
        case "float":
            return float(value)
        case "complex":
            return complex(value)
        case _:
            return value


def _tuple(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, cast("list[Any]", value))) if isinstance(value, list) else value

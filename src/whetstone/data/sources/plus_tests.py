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

_AGREEMENT = """
def _close(left, right):
    if left == right:
        return True
    if isinstance(right, (list, tuple)):
        return (
            isinstance(left, (list, tuple))
            and isinstance(left, list) == isinstance(right, list)
            and len(left) == len(right)
            and all(map(_close, left, right))
        )
    if isinstance(right, dict):
        return isinstance(left, dict) and left.keys() == right.keys() and all(
            _close(left[key], right[key]) for key in right
        )
    if not isinstance(left, (int, float, complex)) or not isinstance(right, (float, complex)):
        return False
    if left != left or right != right:
        return left != left and right != right
    return abs(left - right) <= max(ATOL, 1e-6) + 1e-7 * abs(right)
"""
_RUN = """
_reference = {}
exec(REFERENCE, _reference)


def agree(program, inputs):
    import copy

    for number, arguments in enumerate(inputs):
        expected = _reference[ENTRY_POINT](*copy.deepcopy(arguments))
        returned = program(*arguments)
        if not accepted(returned, expected, arguments):
            raise AssertionError(f"input {number}: got {returned!r:.100}, expected {expected!r:.100}")
"""
_RULES = {
    "same": """
def accepted(returned, expected, arguments):
    return _close(returned, expected)
""",
    "same elements": """
def accepted(returned, expected, arguments):
    return set(returned) == set(expected)
""",
    "something or nothing": """
def accepted(returned, expected, arguments):
    return (returned if isinstance(returned, bool) else returned is not None) == (
        expected if isinstance(expected, bool) else expected is not None
    )
""",
    "a root": """
def accepted(returned, expected, arguments):
    return abs(sum(factor * returned**power for power, factor in enumerate(arguments[0]))) <= ATOL
""",
    "zero or same": """
def accepted(returned, expected, arguments):
    return returned == 0 or _close(returned, expected)
""",
    "either height": """
def accepted(returned, expected, arguments):
    edge, height = arguments
    upright = round(edge**2 + 2 * edge * ((edge / 2) ** 2 + height**2) ** 0.5)
    return _close(returned, expected) or abs(returned - upright) <= ATOL
""",
    "padded digits": """
def accepted(returned, expected, arguments):
    width = max(len(str(number)) for number in arguments)
    digits = zip(*(map(int, str(number).zfill(width)) for number in arguments))
    return returned == expected or returned == sum(abs(left - right) for left, right in digits)
""",
}
_RULE_OF = {
    **dict.fromkeys(
        ("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
         "intersection_array", "find_dissimilar", "Diff"), "same elements"),
    **dict.fromkeys(("check_str", "text_match_three", "text_starta_endb"), "something or nothing"),
    "find_zero": "a root",
    "sum_div": "zero or same",
    "surface_Area": "either height",
    "digit_distance_nums": "padded digits",
}  # fmt: skip


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
        f"BASE = {_literal(base)}\nPLUS = {_literal(plus)}\n{_AGREEMENT}{_RULES[rule]}{_RUN}"
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


# JSON has no tuples, sets and complex numbers. These are the types of the arguments of such problems of MBPP.
# A row has a type for each argument; the last one applies to all that follow.
_SHAPES: dict[tuple[int, ...], tuple[str, ...]] = {
    (2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744,
     809): ("tuple",),
    (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780): ("tuples",),
    (75, 413, 444, 753): ("tuples", "as it is"),
    (106, 750): ("as it is", "tuple"),
    (115,): ("sets",),
    (124,): ("float", "complex"),
    (250, 307, 405, 446, 617, 720, 763, 808): ("tuple", "as it is"),
    (252,): ("complex",),
    (259, 278, 401, 445): ("tuple of tuples",),
    (580, 615, 791): ("all tuples",),
    (722,): ("values tuples", "as it is"),
}  # fmt: skip
_SHAPE_OF = {number: shape for numbers, shape in _SHAPES.items() for number in numbers}


def with_python_types(number: int, inputs: list[list[Any]]) -> list[Any]:
    """Return inputs of a problem of MBPP+ as Python values; in JSON they have lists and text only."""
    shape = _SHAPE_OF.get(number)
    if shape is None:
        return inputs
    return [
        [_with_shape(shape[min(i, len(shape) - 1)], argument) for i, argument in enumerate(arguments)]
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

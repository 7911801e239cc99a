"""The assertions of a test module, and which of them compare a value with an expected one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from whetstone.judge.repository.constants import APPROX, FunctionNode, ModuleNames, is_constant

# Methods of unittest that compare two values, and those that compare one with a constant.
_EQUALITIES = frozenset(
    {"assertDictEqual", "assertEqual", "assertEquals", "assertIs", "assertListEqual"}
    | {"assertMultiLineEqual", "assertSequenceEqual", "assertSetEqual", "assertTupleEqual"}
)
_WITH_CONSTANT = {"assertIsNone": None, "assertTrue": True, "assertFalse": False}
# The tolerances of pytest.approx, and the places of assertAlmostEqual.
_RELATIVE, _ABSOLUTE, _PLACES = 1e-6, 1e-12, 7

Tolerance = tuple[float, float]
"""The relative and the absolute tolerance. The larger one counts."""


@dataclass(frozen=True)
class Comparison:
    """An assertion that a value equals an expected one."""

    value: ast.expr
    expected: ast.expr
    tolerance: Tolerance | None = None


@dataclass
class Assertion:
    """One condition of an assertion. ``opened``: it may only report whether it is true."""

    hole: int
    condition: ast.expr
    function: FunctionNode | None
    tolerance: Tolerance | None = None
    opened: bool = False

    def comparison(self, names: ModuleNames, hidden: frozenset[str]) -> Comparison | None:
        """Return the comparison with a constant, if ``hidden`` variables are constant; None if it is none."""
        match self.condition:
            case ast.Compare(left, [ast.Eq() | ast.Is()], [right]) if not self.opened:
                pass
            case _:
                return None
        # The right side is usually the expected one, and both may be constant.
        for value, expected in ((left, right), (right, left)):
            found = _approximate(value, expected, names) or Comparison(value, expected, self.tolerance)
            if is_constant(found.expected, names, hidden):
                return found
        return None


def _approximate(value: ast.expr, expected: ast.expr, names: ModuleNames) -> Comparison | None:
    """Return the comparison with ``pytest.approx(…)``; None if it is another one."""
    if not isinstance(expected, ast.Call) or names.meaning(expected.func) != APPROX:
        return None
    options = dict(zip(("expected", "rel", "abs"), expected.args, strict=False))
    options |= {keyword.arg: keyword.value for keyword in expected.keywords if keyword.arg}
    numbers = {name: _number(node) for name, node in options.items() if name != "expected"}
    if None in numbers.values() or numbers.keys() - {"rel", "abs"} or "expected" not in options:
        return None
    given = {name: number for name, number in numbers.items() if number is not None}
    # As pytest does: an absolute tolerance alone replaces the relative one.
    relative = given.get("rel", 0.0 if "abs" in given else _RELATIVE)
    return Comparison(value, options["expected"], (relative, given.get("abs", _ABSOLUTE)))


def _number(node: ast.expr) -> float | None:
    try:
        return float(ast.literal_eval(node))
    except (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError):
        return None


def conditions(statement: ast.stmt) -> list[tuple[ast.expr, Tolerance | None]]:
    """Return the conditions that a statement asserts, each with its tolerance; empty if it asserts none."""
    match statement:
        case ast.Assert(test):
            return [(part, None) for part in _parts(test)]
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("self"), method), arguments)):
            return _unittest_conditions(statement.value, method, arguments)  # pyright: ignore
        case _:
            return []


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from _parts(value)
    else:
        yield test


def _unittest_conditions(
    call: ast.Call, method: str, arguments: list[ast.expr]
) -> list[tuple[ast.expr, Tolerance | None]]:
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    if method in _WITH_CONSTANT and len(arguments) in (1, 2) and not options.keys() - {"msg"}:
        constant = _WITH_CONSTANT[method]
        if constant is None:
            return [(ast.Compare(arguments[0], [ast.Is()], [ast.Constant(None)]), None)]
        return [(arguments[0] if constant else ast.UnaryOp(ast.Not(), arguments[0]), None)]
    if method in _EQUALITIES and len(arguments) in (2, 3) and not options.keys() - {"msg"}:
        return [(ast.Compare(arguments[0], [ast.Eq()], [arguments[1]]), None)]
    if method == "assertAlmostEqual" and len(arguments) == 2 and not options.keys() - {"places", "msg"}:
        places = _number(options["places"]) if "places" in options else _PLACES
        if places is not None:
            # It rounds the difference to so many places.
            return [(ast.Compare(arguments[0], [ast.Eq()], [arguments[1]]), (0.0, 0.5 * 10.0**-places))]
    return []


def find_assertions(
    tree: ast.Module, first_hole: int, opened: frozenset[int]
) -> dict[ast.stmt, list[Assertion]]:
    """Return the assertions in functions of a module by their statements, numbered in order of source."""
    found: dict[ast.stmt, list[Assertion]] = {}
    hole = first_hole
    waiting: list[tuple[ast.AST, FunctionNode | None]] = [(tree, None)]
    while waiting:
        node, function = waiting.pop()
        if function is None and isinstance(node, FunctionNode):
            function = node
        if function is not None and isinstance(node, ast.stmt):
            for condition, tolerance in conditions(node):
                one = Assertion(hole, condition, function, tolerance, hole in opened)
                found.setdefault(node, []).append(one)
                hole += 1
        waiting += [(child, function) for child in reversed([*ast.iter_child_nodes(node)])]
    return found

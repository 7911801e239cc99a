"""The assertions of a test module, and which of them compare a value with an expected one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from whetstone.judge.repository.constants import APPROX, FunctionNode, ModuleNames, is_constant

# Methods of unittest that compare two values.
_EQUALITIES = frozenset(
    {"assertDictEqual", "assertEqual", "assertEquals", "assertIs", "assertListEqual"}
    | {"assertMultiLineEqual", "assertSequenceEqual", "assertSetEqual", "assertTupleEqual"}
)
# The tolerances of pytest.approx, and the places of assertAlmostEqual.
_RELATIVE, _ABSOLUTE, _PLACES = 1e-6, 1e-12, 7

Tolerance = tuple[float, float]
"""The relative and the absolute tolerance. The larger one counts."""


@dataclass(frozen=True)
class AssertedComparison:
    """An assertion that a value equals an expected one."""

    value: ast.expr
    expected: ast.expr
    tolerance: Tolerance | None = None


@dataclass
class SealedAssertion:
    """One condition of an assertion. ``opened``: it may only report whether it is true."""

    hole: int
    condition: ast.expr
    function: FunctionNode
    tolerance: Tolerance | None = None
    opened: bool = False

    def comparison(self, names: ModuleNames, hidden: frozenset[str]) -> AssertedComparison | None:
        """Return the comparison with a constant, if ``hidden`` variables are constant; None if it is none."""
        match self.condition:
            case ast.Compare(left, [ast.Eq()], [right]) if not self.opened:
                # The right side is usually the expected one, and both may be constant.
                sides = ((left, right), (right, left))
            case _:
                sides = ()
        for value, expected in sides:
            found = _approximate(value, expected, names) or AssertedComparison(
                value, expected, self.tolerance
            )
            if is_constant(found.expected, names, hidden):
                return found
        return None


def _approximate(value: ast.expr, expected: ast.expr, names: ModuleNames) -> AssertedComparison | None:
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
    return AssertedComparison(value, options["expected"], (relative, given.get("abs", _ABSOLUTE)))


def _number(node: ast.expr) -> float | None:
    try:
        return float(ast.literal_eval(node))
    except (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError):
        return None


def conditions(node: ast.AST) -> list[tuple[ast.expr, Tolerance | None]]:
    """Return the conditions that a statement asserts, each with its tolerance; empty if it asserts none."""
    match node:
        case ast.Assert(ast.BoolOp(ast.And(), parts)):
            return [(part, None) for part in parts]
        case ast.Assert(test):
            return [(test, None)]
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("self"), method), arguments, keywords)):
            options = {keyword.arg: keyword.value for keyword in keywords if keyword.arg != "msg"}
            return [*_unittest_condition(method, arguments, options)]
        case _:
            return []


def _unittest_condition(
    method: str, arguments: list[ast.expr], options: dict[str | None, ast.expr]
) -> Iterator[tuple[ast.expr, Tolerance | None]]:
    """Yield what a method of unittest asserts. The last argument may be a message."""
    match method, arguments:
        case "assertTrue", [value] | [value, _] if not options:
            yield value, None
        case "assertFalse", [value] | [value, _] if not options:
            yield ast.UnaryOp(ast.Not(), value), None
        case "assertIsNone", [value] | [value, _] if not options:
            yield ast.Compare(value, [ast.Is()], [ast.Constant(None)]), None
        case _, [value, expected] | [value, expected, _] if method in _EQUALITIES and not options:
            comparison = ast.Is() if method == "assertIs" else ast.Eq()
            yield ast.Compare(value, [comparison], [expected]), None
        case "assertAlmostEqual", [value, expected] if not options.keys() - {"places"}:
            places = _number(options["places"]) if options else _PLACES
            if places is not None:  # it rounds the difference to so many places
                yield ast.Compare(value, [ast.Eq()], [expected]), (0.0, 0.5 * 10.0**-places)
        case _:
            pass


def find_assertions(
    tree: ast.Module, first_hole: int, opened: frozenset[int]
) -> dict[ast.AST, list[SealedAssertion]]:
    """Return the assertions in functions of a module by their statements, numbered from ``first_hole``."""
    found: dict[ast.AST, list[SealedAssertion]] = {}
    inside: set[ast.AST] = set()
    holes = count(first_hole)
    for function in ast.walk(tree):  # an outer one before those in it
        if isinstance(function, FunctionNode) and function not in inside:
            for node in ast.walk(function):
                inside.add(node)
                for condition, tolerance in conditions(node):
                    hole = next(holes)
                    one = SealedAssertion(hole, condition, function, tolerance, hole in opened)
                    found.setdefault(node, []).append(one)
    return found

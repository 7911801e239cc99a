"""Read assertions about one call of a program, such as ``assert f(1, [2]) == 3``.

``read_assertion`` tells what an asserted expression compares, and how. ``read_asserted_call`` also evaluates
the arguments of the call and the expected value. Who evaluates decides what a constant is: literals, unless
another function is given. Nothing of the test code is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal, NamedTuple

# The equivalents of ``assert a == b`` in ``unittest``.
_UNITTEST_EQUAL = frozenset(
    {"assertEqual", "assertEquals", "assertAlmostEqual", "assertListEqual", "assertIs"}
)
_CLOSE_FUNCTIONS = frozenset({"isclose", "allclose"})
# What evaluating a node that is no constant may raise: its content, its nesting, or its size is at fault.
NOT_CONSTANT = (ValueError, TypeError, SyntaxError, ArithmeticError, MemoryError, RecursionError)

Relation = Literal["equal", "unequal", "is", "true", "false", "distance", "close"]
Evaluate = Callable[[ast.expr], Any]


class Assertion(NamedTuple):
    """An asserted expression, by what it compares.

    ``equal``, ``unequal`` and ``is`` are the operators. ``true`` and ``false`` ask for the truth of ``left``;
    so does every expression of another form. ``distance`` is ``abs(left - right) < limit``, and ``close`` is
    ``isclose(left, right)``.
    """

    relation: Relation
    left: ast.expr
    right: ast.expr | None = None
    """The other side; None for ``true`` and ``false``."""
    tolerance: tuple[tuple[str, ast.expr], ...] = ()
    """For ``close``, the other arguments by name or position; for ``distance``, the limit by its operator."""
    function: str = ""
    """The function of ``close`` as the test writes it, such as ``math.isclose``."""

    def split(self, evaluate: Evaluate = ast.literal_eval) -> tuple[ast.expr, Any]:
        """Return the expression under test, and the value it is compared with. Either side may be the value.

        Raises the errors of ``evaluate`` (see ``NOT_CONSTANT``) if neither side is constant.
        """
        if self.right is None:
            return self.left, self.relation == "true"
        try:
            return self.left, evaluate(self.right)
        except ValueError:
            return self.right, evaluate(self.left)


class AssertedCall(NamedTuple):
    """An assertion that relates the result of a call to a value."""

    call: ast.Call
    args: list[Any]
    kwargs: dict[str, Any]
    relation: Relation
    expected: Any
    """The value of the other side; whether the result is true, for ``true`` and ``false``."""

    @property
    def name(self) -> str:
        """The name of the called function; empty for a method or another expression."""
        return self.call.func.id if isinstance(self.call.func, ast.Name) else ""


def read_assertion(test: ast.expr) -> Assertion:
    """Return what an asserted expression compares."""
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return Assertion("equal", left, right)
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            return Assertion("unequal", left, right)
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[right]):
            return Assertion("is", left, right)
        case ast.Compare(
            left=ast.Call(
                func=ast.Name(id="abs"),
                args=[ast.BinOp(left=left, op=ast.Sub(), right=right)],
                keywords=[],
            ),
            ops=[ast.Lt() | ast.LtE() as operator],
            comparators=[limit],
        ):
            sign = "<" if isinstance(operator, ast.Lt) else "<="
            return Assertion("distance", left, right, ((sign, limit),))
        case ast.Call(func=function, args=[left, right, *others], keywords=keywords) if is_named(
            function, _CLOSE_FUNCTIONS
        ):
            positional = [(str(position), node) for position, node in enumerate(others, 2)]
            named = [(str(keyword.arg), keyword.value) for keyword in keywords]
            return Assertion("close", left, right, (*positional, *named), ast.unparse(function))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return Assertion("false", operand)
        case _:
            return Assertion("true", test)


def read_asserted_call(
    test: ast.expr, evaluate: Evaluate = ast.literal_eval, conversions: Collection[str] = ()
) -> AssertedCall | None:
    """Return the call in an asserted expression with its arguments and its expected value.

    None if the expression is of another form, or if a value is not constant. A call within ``conversions``,
    such as ``sorted(f(x))``, is read as the call alone.
    """
    assertion = read_assertion(test)
    try:
        call, expected = assertion.split(evaluate)
        while isinstance(call, ast.Call) and call.args and is_named(call.func, conversions):
            call = call.args[0]
        if not isinstance(call, ast.Call):
            return None
        args, kwargs = read_arguments(call, evaluate)
    except NOT_CONSTANT:
        return None
    return AssertedCall(call, args, kwargs, assertion.relation, expected)


def read_arguments(call: ast.Call, evaluate: Evaluate = ast.literal_eval) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call. Raises ``NOT_CONSTANT``, also for ``*args`` and ``**kwargs``."""
    args = [evaluate(argument) for argument in call.args]
    kwargs = {keyword.arg: evaluate(keyword.value) for keyword in call.keywords}
    if len(kwargs) != len(call.keywords):
        raise ValueError("an argument is given twice")
    named = {name: value for name, value in kwargs.items() if name is not None}
    if len(named) != len(kwargs):
        raise ValueError("the names of the arguments are not known")
    return args, named


def is_named(function: ast.expr, names: Collection[str]) -> bool:
    """Return whether a called function has one of these names, also as an attribute (``np.isclose``)."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in names
        case _:
            return False


def asserted_expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what the code asserts: by ``assert``, or by the equivalent of a ``unittest`` method."""
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=test):
                yield test
            case ast.Call(func=ast.Attribute(attr=method), args=[left, right, *_]) if (
                method in _UNITTEST_EQUAL
            ):
                yield ast.Compare(left, [ast.Eq()], [right])
            case ast.Call(func=ast.Attribute(attr="assertTrue"), args=[test, *_]):
                yield test
            case ast.Call(func=ast.Attribute(attr="assertFalse"), args=[test, *_]):
                yield ast.UnaryOp(ast.Not(), test)
            case _:
                pass


def check_parameter(function: ast.FunctionDef) -> str | None:
    """Return the name by which ``def check(candidate)`` calls the program; None for other parameters."""
    parameters = function.args
    # Defaults and other kinds of parameters would be further nodes.
    if len(parameters.args) == 1 and [*ast.iter_child_nodes(parameters)] == parameters.args:
        return parameters.args[0].arg
    return None

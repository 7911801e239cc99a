"""Asserts as inputs and answers: reading the given asserts, and writing new ones in the same form.

A new assert compares as the given ones do: by ``==``, by ``is``, by truth, within an error, or after the same
wrapper (``set(f(x)) == …``). So it accepts the same answers. Numbers with a fraction are always compared
within an error, because right programs add them up in several orders.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from msgspec import Struct

from whetstone.core.asserted_call import NOT_CONSTANT, Assertion, read_arguments, read_assertion
from whetstone.core.literal import write_literal
from whetstone.core.problem import AssertTests
from whetstone.core.syntax import parsed

_WRAPPERS = {"set", "sorted", "tuple", "list", "len", "round", "str", "frozenset", "dict", "sum", "bool"}
_CLOSE = "rel_tol=1e-06, abs_tol=1e-06"
_HOLE = "__call__"
# The name of the function that returns what an assert compares.
COMPARED_FUNCTION = "_compared"


class AssertForm(Struct, frozen=True):
    """The form of a problem's asserts.

    name: that they call. function: of the program. expression: what they compare, with ``__call__`` in place
    of the call. comparison: ``equal``, ``is``, ``truth`` or ``close``. tolerance: of numbers, as keywords of
    ``math.isclose``.
    """

    name: str
    function: str
    expression: str
    comparison: str
    tolerance: str = _CLOSE

    def compared_value_code(self) -> str:
        """Return the code, after a program, of a function that returns what an assert compares.

        Its name is ``COMPARED_FUNCTION``.
        """
        call = self.expression.replace(_HOLE, f"{self.function}(*_arguments)")
        call = f"bool({call})" if self.comparison == "truth" else call
        return f"\n\ndef {COMPARED_FUNCTION}(*_arguments):\n    return {call}\n"


class _ReadAssert(NamedTuple):
    """A given assert: the arguments of its call, and the fields of ``AssertForm``."""

    arguments: list[Any]
    expression: str
    comparison: str
    tolerance: str


def read_asserts(
    tests: AssertTests, function: str, recorded: Sequence[list[Any]] = ()
) -> tuple[AssertForm, list[list[Any]]] | None:
    """Return the most frequent form of the asserts, and the arguments of all that can be read; None if none
    can.

    function: of the program, which test code may call by another name. recorded: the arguments of the calls,
    if they are no literals.
    """
    found: list[_ReadAssert] = []
    name = function
    for test, name in _asserted(tests, function):
        if (one := _read_assert(test, name, literals=not recorded)) is not None:
            found.append(one)
    if not found:
        return None
    widths = Counter(len(each.arguments) for each in found)
    width = widths.most_common(1)[0][0]
    found = [each for each in found if len(each.arguments) == width]
    (expression, comparison), _ = Counter((each.expression, each.comparison) for each in found).most_common(
        1
    )[0]
    arguments = recorded or [each.arguments for each in found]
    seeds = list({repr(each): each for each in arguments}.values())
    tolerance = Counter(each.tolerance for each in found if each.tolerance).most_common(1)
    form = AssertForm(name, function, expression, comparison, tolerance[0][0] if tolerance else _CLOSE)
    return (form, seeds) if width or recorded else None


def written_assert(form: AssertForm, arguments: Sequence[Any], value: Any) -> str | None:
    """Return the assert that a call has this value; None if no fair comparison with a literal can say so."""
    try:
        given = ", ".join(map(write_literal, arguments))
        expected = write_literal(value)
    except ValueError:
        return None
    text = form.expression.replace(_HOLE, f"{form.name}({given})")
    if not _is_plain(list(arguments)) or not _is_plain(value):
        return None
    if form.comparison == "truth":
        return f"assert {text}" if value else f"assert not {text}"
    if form.comparison == "is" and (value is None or isinstance(value, bool)):
        return f"assert {text} is {expected}"
    if isinstance(value, float) or (form.comparison == "close" and type(value) is int):
        return f"assert math.isclose({text}, {expected}, {form.tolerance})"
    if _has_floats(value):
        return _row_of_floats(form.tolerance, text, value, expected)
    return f"assert {text} == {expected}"


def with_asserts(tests: AssertTests, lines: Sequence[str]) -> AssertTests:
    """Return the tests with more asserts, at the end of the list or of the function ``check``."""
    needs_math = any("math." in line for line in lines)
    if tests.asserts:
        setup = tests.setup
        if needs_math and "import math" not in setup:
            setup = f"import math\n{setup}"
        return AssertTests(setup=setup, asserts=[*tests.asserts, *lines], entry_point=tests.entry_point)
    code = tests.check or ""
    node = _check(parsed(code))
    assert node is not None
    rows = code.splitlines()
    indent = " " * node.body[0].col_offset
    rows[node.end_lineno : node.end_lineno] = [indent + line for line in lines]
    text = "\n".join(rows) + "\n"
    if needs_math and "import math" not in text:
        text = f"import math\n{text}"
    return AssertTests(setup=tests.setup, check=text, entry_point=tests.entry_point)


def only_asserts(tests: AssertTests, form: AssertForm, lines: Sequence[str]) -> AssertTests:
    """Return tests of these asserts alone, each of which is a case."""
    entry = form.function if form.name == "candidate" or tests.entry_point else None
    setup = tests.setup if tests.asserts else ""
    return AssertTests(setup=f"import math\n{setup}", asserts=list(lines), entry_point=entry)


def _asserted(tests: AssertTests, function: str) -> Iterator[tuple[ast.expr, str]]:
    """Yield every asserted expression, with the name by which it calls the program's function."""
    for code in tests.asserts or []:
        tree = parsed(code)
        yield from (
            (node.test, function) for node in (tree.body if tree else []) if isinstance(node, ast.Assert)
        )
    check = None if tests.asserts else _check(parsed(tests.check or ""))
    if check is not None and len(check.args.args) == 1:
        name = check.args.args[0].arg
        yield from ((node.test, name) for node in ast.walk(check) if isinstance(node, ast.Assert))


def _check(tree: ast.Module | None) -> ast.FunctionDef | None:
    """Return the function ``check``, unless it is one line, after which no assert can be added."""
    for node in tree.body if tree else []:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.body[0].lineno > node.lineno:
            return node
    return None


def _read_assert(test: ast.expr, name: str, *, literals: bool) -> _ReadAssert | None:
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call) and _calls(node, name)]
    if len(calls) != 1 or calls[0].keywords:
        return None
    try:
        arguments, _ = read_arguments(calls[0]) if literals else ([], {})
    except NOT_CONSTANT:
        return None
    assertion = read_assertion(test)
    expression, comparison = _comparison(assertion, calls[0])
    return _ReadAssert(arguments, expression, comparison, _tolerance(assertion)) if expression else None


def _calls(node: ast.Call, name: str) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == name


def _tolerance(assertion: Assertion) -> str:
    """Return the tolerance of an assert as keywords of ``math.isclose``; empty if it has none."""
    if assertion.relation == "close":
        named = [(name, node) for name, node in assertion.tolerance if not name.isdecimal()]
        return ", ".join(f"{name}={ast.unparse(node)}" for name, node in named)
    match assertion:
        case Assertion(relation="distance", tolerance=((_, ast.Constant(value=float() as most)),)):
            return f"rel_tol=1e-06, abs_tol={max(most, 1e-6)!r}"
        case _:
            return ""


def _comparison(assertion: Assertion, call: ast.Call) -> tuple[str, str]:
    """Return the expression that is compared, and how; empty texts for other forms."""
    sides = (assertion.left, assertion.right)
    match assertion.relation:
        case "equal" if assertion.right is not None:
            side = assertion.left if call in ast.walk(assertion.left) else assertion.right
            return _expression(side, call), "equal"
        case "is" if assertion.left is call and isinstance(assertion.right, ast.Constant):
            return _HOLE, "is"
        case "distance" if call in sides:
            return _HOLE, "close"
        case "close" if call in sides and assertion.function.endswith(".isclose"):
            return _HOLE, "close"
        case "true" | "false" if assertion.left is call:
            return _HOLE, "truth"
        case _:
            return "", ""


def _expression(side: ast.expr, call: ast.Call) -> str:
    names = {node.id for node in ast.walk(side) if isinstance(node, ast.Name)}
    inner = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    if not names - inner <= _WRAPPERS:
        return ""
    whole, part = ast.unparse(side), ast.unparse(call)
    return whole.replace(part, _HOLE) if whole.count(part) == 1 else ""


def _is_plain(value: Any) -> bool:
    """Return whether a value is finite and of types that have literals."""
    if isinstance(value, float | complex):
        return math.isfinite(abs(value))
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return all(_is_plain(key) and _is_plain(item) for key, item in pairs)
    if isinstance(value, list | tuple | set):
        return all(map(_is_plain, cast("Sequence[Any]", value)))
    return value is None or isinstance(value, bool | int | str | bytes)


def _has_floats(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_floats, cast("dict[Any, Any]", value).values()))
    if isinstance(value, list | tuple | set):
        return any(map(_has_floats, cast("Sequence[Any]", value)))
    if isinstance(value, float):
        return not value.is_integer()
    return isinstance(value, complex)


def _row_of_floats(tolerance: str, text: str, value: Any, expected: str) -> str | None:
    """Return the assert for a list of numbers; None if the numbers are nested deeper."""
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, int | float) for item in cast("Sequence[object]", value)
    ):
        return None
    near = f"all(math.isclose(g, w, {tolerance}) for g, w in zip(got, want))"
    return f"assert (lambda got, want: len(got) == len(want) and {near})({text}, {expected})"

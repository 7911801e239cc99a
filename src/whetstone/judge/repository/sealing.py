"""Take the expected values out of the source of test modules.

A test of a repository runs in the interpreter of the code that it tests, because it imports that code. So
what the test knows, the code can read, and what the test reports, the code can forge. A sealed test knows
nothing worth reading: ``assert parse("4") == 4`` becomes ``observer.value(0, parse("4"))``. The value goes
out as inert data. The grader compares it with the expected one, which it alone has. A forged report would
have to contain the right values.

The same assertion in a recording reads ``observer.record(0, parse("4"), 4)``. A run with the reference then
gives the expected values. An expected side is taken out if it is constant, with the variables and the columns
of ``pytest.mark.parametrize`` that only expected sides read. Every other assertion reports whether it is
true, which code can forge; ``ExpectedTest.is_sealed`` says for which tests that matters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from whetstone.core.syntax import parsing
from whetstone.judge.repository.assertions import SealedAssertion, Tolerance, find_assertions
from whetstone.judge.repository.constants import FunctionNode, ModuleNames
from whetstone.judge.repository.hidden_names import HiddenNames, assigned
from whetstone.judge.repository.parameter_tables import ParameterTable, tables_of

OBSERVER = "whetstone_observer"
# A test may not make the analysis expensive.
_MOST_NODES = 200_000


class NotSealable(Exception):
    """The test module does not parse, or is too large."""


@dataclass(frozen=True)
class SealedModule:
    """The two forms of a test module. Both have the same tests under the same ids.

    ``sealed`` is run with the code to be graded, ``recording`` with the reference. The module has ``holes``
    assertions. ``tolerances`` gives the tolerance of those that compare approximately.
    """

    sealed: str
    recording: str
    holes: int
    tolerances: dict[int, Tolerance] = field(default_factory=dict[int, Tolerance])


def seal_module(source: str, *, first_hole: int = 0, opened: Iterable[int] = ()) -> SealedModule:
    """Seal a test module. ``first_hole`` is the number of its first assertion.

    The ``opened`` ones report only whether they are true. A recording tells which these must be: the value
    has no plain form, or equals the expected one only by a method of its own. Raises NotSealable.
    """
    try:
        sealed, recording = (
            _Sealer(source, first_hole, frozenset(opened), recording=flag) for flag in (False, True)
        )
        return SealedModule(sealed.source(), recording.source(), sealed.holes, sealed.tolerances)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotSealable(f"the test module cannot be read: {error}") from None


class _Sealer(ast.NodeTransformer):
    """Replaces the assertions of one module."""

    def __init__(self, source: str, first_hole: int, opened: frozenset[int], *, recording: bool) -> None:
        with parsing():
            self._tree = ast.parse(source)
        if sum(1 for _ in ast.walk(self._tree)) > _MOST_NODES:
            raise ValueError("it is too large")
        self._recording = recording
        self.tolerances: dict[int, Tolerance] = {}
        self._names = ModuleNames(self._tree)
        lists = {name: value for name, value in map(assigned, self._tree.body) if value is not None}
        functions = [node for node in ast.walk(self._tree) if isinstance(node, FunctionNode)]
        self._tables: dict[FunctionNode, list[ParameterTable]] = {
            node: tables_of(node, lists) for node in functions if node.decorator_list
        }
        self._assertions = find_assertions(self._tree, first_hole, opened)
        each = [one for several in self._assertions.values() for one in several]
        self.holes = len(each)
        self._hidden = HiddenNames(self._tree, self._names, each, self._tables)
        self._function: FunctionNode | None = None

    def source(self) -> str:
        """Return the new source."""
        for function, tables in self._tables.items():
            for table in tables:
                table.number_rows()
                if not self._recording:
                    table.hide(self._hidden.own(function))
        tree = self.visit(self._tree)
        # Docstrings and imports from the future must stay first.
        place = 0
        while place < len(tree.body) and (
            _is_text(tree.body[place]) or getattr(tree.body[place], "module", "") == "__future__"
        ):
            place += 1
        tree.body.insert(place, ast.Import([ast.alias(OBSERVER)]))
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"

    def visit(self, node: ast.AST) -> Any:
        """Replace assertions by their observations, remove hidden variables, and empty docstrings."""
        outer = self._function
        if outer is None and isinstance(node, FunctionNode):
            self._function = node
        try:
            if node in self._assertions:
                return [self._observation(each) for each in self._assertions[node]]
            if not self._recording:
                if assigned(node)[0] in self._hidden.own(self._function):
                    return ast.Pass()
                if _is_text(node):
                    return ast.Expr(ast.Constant(""))
            return self.generic_visit(node)
        finally:
            self._function = outer

    def _observation(self, each: SealedAssertion) -> ast.stmt:
        hidden = self._hidden.visible(each.function)
        found = each.comparison(self._names, hidden)
        if found is not None:
            if found.tolerance is not None:
                self.tolerances[each.hole] = found.tolerance
            if self._recording:
                return _call("record", each.hole, found.value, found.expected)
            return _call("value", each.hole, found.value)
        condition, wanted = each.condition, True
        while isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
            condition, wanted = condition.operand, not wanted
        if self._recording:
            return _call("record_truth", each.hole, condition, ast.Constant(wanted))
        return _call("truth", each.hole, condition)


def _is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, or a text that stands alone."""
    match node:
        case ast.Expr(ast.Constant(str())):
            return True
        case _:
            return False


def _call(method: str, hole: int, *values: ast.expr) -> ast.stmt:
    function = ast.Attribute(ast.Name(OBSERVER, ast.Load()), method, ast.Load())
    return ast.Expr(ast.Call(function, [ast.Constant(hole), *values], []))

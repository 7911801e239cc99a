"""Find the variables and parametrized columns of a test module that only expected sides read.

They hold expected values, so a sealed module must not have them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from whetstone.judge.repository.assertions import SealedAssertion
from whetstone.judge.repository.constants import FunctionNode, ModuleNames, is_constant
from whetstone.judge.repository.parameter_tables import ParameterTable


@dataclass
class _Scope:
    """A function, or the module: its candidates with the expressions that they hold, and what it reads."""

    values: dict[str, list[ast.expr]]
    loads: Counter[str]

    @classmethod
    def of(cls, node: FunctionNode | ast.Module, tables: Sequence[ParameterTable]) -> _Scope:
        """Find the variables that are assigned once, and the columns of tables."""
        stores, loads, arguments = Counter[str](), Counter[str](), Counter[str]()
        for found in ast.walk(node):
            match found:
                case ast.Name(name, ast.Load()):
                    loads[name] += 1
                case ast.Name(name):
                    stores[name] += 1
                case ast.arg(name):
                    arguments[name] += 1
                case ast.Global(names) | ast.Nonlocal(names):
                    stores.update(names)  # it is assigned elsewhere too
                case _:
                    pass
        values: dict[str, list[ast.expr]] = {}
        for name, value in map(assigned, node.body):
            if value is not None and stores[name] == 1 and not arguments[name]:
                values[name] = [value]
        for table in tables:
            for column, name in enumerate(table.names):
                cells = table.cells(column)
                if cells is not None and not stores[name] and arguments[name] == 1:
                    values[name] = cells
        return cls(values, loads)


def assigned(statement: ast.AST) -> tuple[str, ast.expr | None]:
    """Return the variable and the value of a simple assignment; no value for any other statement."""
    match statement:
        case ast.Assign([ast.Name(name)], value):
            return name, value
        case ast.AnnAssign(ast.Name(name), _, value):
            return name, value
        case _:
            return "", None


class HiddenNames:
    """The hidden names of a module, and of each of its functions. The module is the function None."""

    def __init__(
        self,
        tree: ast.Module,
        names: ModuleNames,
        assertions: Sequence[SealedAssertion],
        tables: Mapping[FunctionNode, Sequence[ParameterTable]],
    ) -> None:
        """Find the largest sets of candidates that are constant and that only expected sides read.

        All candidates are hidden at first. Those that are read elsewhere are removed until nothing changes.
        """
        self._names = names
        # Nothing else may read a copied list, whatever stands in it.
        self._copied = {table.copied for several in tables.values() for table in several}
        self._assertions = assertions
        functions = {each.function for each in assertions} | tables.keys()
        self._scopes: dict[FunctionNode | None, _Scope] = {
            node: _Scope.of(node or tree, tables.get(node, ()) if node else ()) for node in functions | {None}
        }
        self._hidden = {node: frozenset(scope.values) for node, scope in self._scopes.items()}
        while (kept := {node: self._kept(node) for node in self._scopes}) != self._hidden:
            self._hidden = kept

    def visible(self, function: FunctionNode | None) -> frozenset[str]:
        """Return the hidden names that a function sees."""
        if function not in self._scopes:
            return self._hidden[None]
        # A local name of the same text is another variable.
        return (self._hidden[None] - self._scopes[function].values.keys()) | self._hidden[function]

    def own(self, function: FunctionNode | None) -> frozenset[str]:
        """Return the hidden names of a function itself."""
        return self._hidden.get(function, frozenset())

    def _kept(self, function: FunctionNode | None) -> frozenset[str]:
        """Return which hidden names of a function are constant, and read by expected sides only."""
        scope = self._scopes[function]
        # Functions read the variables of the module, also by variables of their own.
        readers = self._scopes if function is None else (function,)
        sides: list[ast.AST] = [
            value
            for node in readers
            for name in self._hidden[node]
            for value in self._scopes[node].values[name]
        ]
        for each in self._assertions:
            if function is None or each.function is function:
                found = each.comparison(self._names, self.visible(each.function))
                sides += [found.expected] if found is not None else []
        allowed = _loads(sides)
        visible = self.visible(function)
        return frozenset(
            name
            for name in self._hidden[function]
            if scope.loads[name] == allowed[name]
            and (
                (function is None and name in self._copied and not allowed[name])
                or all(is_constant(value, self._names, visible) for value in scope.values[name])
            )
        )


def _loads(nodes: Iterable[ast.AST]) -> Counter[str]:
    return Counter(
        found.id
        for node in nodes
        for found in ast.walk(node)
        if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Load)
    )

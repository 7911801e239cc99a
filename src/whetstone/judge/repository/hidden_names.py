"""Find the variables and parametrized columns of a test module that only expected sides read.

They hold expected values, so a sealed module must not have them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from whetstone.judge.repository.assertions import Assertion
from whetstone.judge.repository.constants import FunctionNode, ModuleNames, is_constant
from whetstone.judge.repository.parameter_tables import ParameterTable

_NONE: frozenset[str] = frozenset()


@dataclass
class _Scope:
    """A function, or the module: its candidates with the expressions that they hold."""

    node: FunctionNode | ast.Module
    values: dict[str, list[ast.expr]] = field(default_factory=dict[str, list[ast.expr]])
    loads: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    def of(cls, node: FunctionNode | ast.Module, tables: Sequence[ParameterTable]) -> _Scope:
        """Find the variables that are assigned once, and the columns of tables."""
        stores: Counter[str] = Counter()
        shared: set[str] = set()
        for found in ast.walk(node):
            match found:
                case ast.Name(name, ast.Store() | ast.Del()):
                    stores[name] += 1
                case ast.Global(names) | ast.Nonlocal(names):
                    shared.update(names)
                case _:
                    pass
        arguments = Counter(found.arg for found in ast.walk(node) if isinstance(found, ast.arg))
        scope = cls(node, loads=_loads([node]))
        for statement in node.body:
            name, value = assigned(statement)
            if value is not None and stores[name] == 1 and not arguments[name] and name not in shared:
                scope.values[name] = [value]
        for table in tables:
            for column, name in enumerate(table.names):
                cells = table.cells(column)
                if (
                    cells is not None
                    and not stores[name]
                    and arguments[name] == 1
                    and name not in scope.values
                ):
                    scope.values[name] = cells
        return scope


def assigned(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """Return the variable and the value of a simple assignment; no value for any other statement."""
    match statement:
        case ast.Assign([ast.Name(name)], value):
            return name, value
        case ast.AnnAssign(ast.Name(name), _, value):
            return name, value
        case _:
            return "", None


class HiddenNames:
    """The hidden names of a module, and of each of its functions."""

    def __init__(
        self,
        tree: ast.Module,
        names: ModuleNames,
        assertions: Iterable[Assertion],
        tables: Mapping[FunctionNode, Sequence[ParameterTable]],
    ) -> None:
        """Find the largest sets of candidates that are constant and that only expected sides read.

        All candidates are hidden at first. Those that are read elsewhere are removed until nothing changes.
        """
        self._names = names
        # Nothing else may read a copied list, whatever stands in it.
        self._copied = {table.copied for several in tables.values() for table in several}
        self._assertions = list(assertions)
        functions = {each.function for each in self._assertions if each.function is not None} | tables.keys()
        self._module = _Scope.of(tree, ())
        self._scopes = {node: _Scope.of(node, tables.get(node, ())) for node in functions}
        self.of_module = frozenset(self._module.values)
        self._of_function = {node: frozenset(scope.values) for node, scope in self._scopes.items()}
        while self._remove_those_read_elsewhere():
            pass

    def visible(self, function: FunctionNode | None) -> frozenset[str]:
        """Return the hidden names that a function sees."""
        if function is None or function not in self._scopes:
            return self.of_module
        own = self._scopes[function]
        # A local name of the same text is another variable.
        local = {name for name in self.of_module if name in own.values}
        return (self.of_module - local) | self._of_function[function]

    def own(self, function: FunctionNode | None) -> frozenset[str]:
        """Return the hidden names of a function itself; those of the module for None."""
        return self.of_module if function is None else self._of_function.get(function, _NONE)

    def _remove_those_read_elsewhere(self) -> bool:
        module, functions = self.of_module, dict(self._of_function)
        self.of_module = self._kept(self._module, None)
        for node, scope in self._scopes.items():
            self._of_function[node] = self._kept(scope, node)
        return (module, functions) != (self.of_module, self._of_function)

    def _kept(self, scope: _Scope, function: FunctionNode | None) -> frozenset[str]:
        own = self.own(function)
        sides: list[ast.AST] = [value for name in own for value in scope.values[name]]
        if function is None:  # functions read the variables of the module, also by variables of their own
            sides += [
                value
                for node, names in self._of_function.items()
                for name in names
                for value in self._scopes[node].values[name]
            ]
        for each in self._assertions:
            if function is None or each.function is function:
                found = each.comparison(self._names, self.visible(each.function))
                sides += [found.expected] if found is not None else []
        allowed = _loads(sides)
        return frozenset(
            name
            for name in own
            if scope.loads[name] == allowed[name]
            and (
                (function is None and name in self._copied and not allowed[name])
                or all(
                    is_constant(value, self._names, self.visible(function)) for value in scope.values[name]
                )
            )
        )


def _loads(nodes: Iterable[ast.AST]) -> Counter[str]:
    return Counter(
        found.id
        for node in nodes
        for found in ast.walk(node)
        if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Load)
    )

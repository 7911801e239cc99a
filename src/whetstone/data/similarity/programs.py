"""A Python program in normal form: equal for two programs that differ in names, comments and layout."""

from __future__ import annotations

import ast
from copy import deepcopy

from msgspec import Struct

from whetstone.core.syntax import parse
from whetstone.data.similarity.words import hash64

# A bound of the time for generated programs with many functions.
_MAX_FUNCTIONS = 20


class _ProgramPrint(Struct, frozen=True):
    """A hash of the normal form, and its number of syntax nodes. A small program is no evidence alone."""

    hash: int
    nodes: int


def read_program(source: str) -> _ProgramPrint | None:
    """Return the normal form of a Python program; None if it does not parse.

    Comments, layout, imports, annotations and docstrings are removed. Names that the program binds
    (functions, parameters, variables, classes) become numbers in order of appearance.
    """
    try:
        return _program_print(parse(source))
    except (ValueError, MemoryError, RecursionError):
        return None


def read_functions(source: str) -> list[_ProgramPrint]:
    """Return the normal form of each function of a Python program, methods included; empty if it does not
    parse."""
    try:
        functions = [node for node in ast.walk(parse(source)) if isinstance(node, ast.FunctionDef)]
        # The reduction changes nodes in place, and functions may be nested.
        return [_program_print(ast.Module([deepcopy(node)], [])) for node in functions[:_MAX_FUNCTIONS]]
    except (ValueError, MemoryError, RecursionError):
        return []


def _program_print(tree: ast.Module) -> _ProgramPrint:
    reduced = _Reduce().visit(tree)
    numbered = _Number(_bound(reduced)).visit(reduced)
    return _ProgramPrint(hash64(ast.dump(numbered)), sum(1 for _ in ast.walk(numbered)))


def _bound(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        # Names that are only read are builtins or imports. They keep their names.
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
    return names


class _Reduce(ast.NodeTransformer):
    """Removes code without effect, and imports."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        # So that a program with annotations and one without have the same form.
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


class _Number(ast.NodeTransformer):
    """Numbers the program's own names in order of appearance."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._numbers: dict[str, str] = {}

    def _name(self, name: str) -> str:
        return self._numbers.setdefault(name, f"_{len(self._numbers)}") if name in self._names else name

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        node.name = self._name(node.name)
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._name(node.arg)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = None if node.arg is None else self._name(node.arg)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

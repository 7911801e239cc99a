"""Which expressions of a test module are constant: they need nothing of the code under test.

Constant are literals, containers and operations of constants, methods of constants, and calls of constructors
of the standard library with constant arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_BUILTINS = frozenset(
    {"bool", "bytearray", "bytes", "chr", "complex", "dict", "float", "frozenset", "int", "len", "list"}
    | {"ord", "range", "reversed", "set", "sorted", "str", "sum", "tuple", "zip"}
)
# What an import may name, besides `pytest.approx`: constructors and constants without side effects.
_LIBRARY = frozenset(
    {"collections.Counter", "collections.OrderedDict", "collections.deque", "decimal.Decimal"}
    | {"fractions.Fraction", "datetime.date", "datetime.datetime", "datetime.time", "datetime.timedelta"}
    | {"datetime.timezone", "datetime.timezone.utc", "datetime.UTC", "math.e", "math.inf", "math.nan"}
    | {"math.pi", "math.sqrt", "os.linesep", "textwrap.dedent"}
)
# Methods of these that read the clock or the machine's time zone.
_NOT_CONSTANT = frozenset({"astimezone", "fromtimestamp", "now", "timestamp", "today", "utcnow"})
APPROX = "pytest.approx"


class ModuleNames:
    """What the names of a module's top level stand for, as far as imports tell."""

    def __init__(self, tree: ast.Module) -> None:
        self._imported: dict[str, str] = {}
        stored: set[str] = set()
        for node in ast.walk(tree):
            match node:
                case ast.Import(names):
                    for alias in names:
                        top = alias.name.partition(".")[0]
                        self._imported[alias.asname or top] = alias.name if alias.asname else top
                case ast.ImportFrom(module, names, 0):
                    self._imported.update({a.asname or a.name: f"{module}.{a.name}" for a in names})
                case ast.ImportFrom(_, names):
                    stored.update(alias.asname or alias.name for alias in names)
                case ast.Name(name, ast.Store() | ast.Del()) | ast.arg(name):
                    stored.add(name)
                case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                    stored.add(name)
                case _:
                    pass
        # A star import could bring any name.
        self._known = "*" not in self._imported
        self._stored = stored

    def meaning(self, node: ast.expr) -> str:
        """Return the full name of a builtin or of an imported object; empty if it is not known."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or not self._known or node.id in self._stored:
            return ""
        first = self._imported.get(node.id, f"builtins.{node.id}")
        return ".".join((first, *reversed(path)))


def is_constant(node: ast.expr, names: ModuleNames, variables: Collection[str] = ()) -> bool:
    """Return whether an expression is constant, if ``variables`` are. The time is linear in its size."""
    match node:
        case ast.Name(name):
            return name in variables
        case ast.Attribute():
            return names.meaning(node) in _LIBRARY
        case ast.Call(function, arguments, keywords):
            called = names.meaning(function)
            known = called in _LIBRARY or called.removeprefix("builtins.") in _BUILTINS
            method = (
                isinstance(function, ast.Attribute)
                and function.attr not in _NOT_CONSTANT
                and is_constant(function.value, names, variables)
            )
            given = (*arguments, *(keyword.value for keyword in keywords))
            return (known or method) and all(is_constant(item, names, variables) for item in given)
        case (ast.Constant() | ast.Tuple() | ast.List() | ast.Set() | ast.Dict()) | (
            ast.Starred() | ast.UnaryOp() | ast.BinOp() | ast.Subscript(_, ast.Constant())
        ):
            children = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
            return all(is_constant(child, names, variables) for child in children)
        case _:
            return False

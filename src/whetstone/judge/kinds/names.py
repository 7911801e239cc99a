"""Which names of test code stand for the program, and which for modules. Decided before anything runs.

The decision uses the problem alone (its test code and its reference programs), never the program
under test: otherwise a program could define ``abs`` or ``len`` and forge the comparison.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from dataclasses import dataclass, field
from functools import lru_cache

# Third-party modules that a reference may import and test code then use without importing.
_KNOWN_MODULES = frozenset({"numpy", "pandas", "scipy", "sympy"})
# What test code that uses them without importing means by these names. Were they asked of the program, its
# class `np` with an `allclose` of its own would decide the test.
_CONVENTIONAL = {"np": "numpy", "pd": "pandas", **{name: name for name in _KNOWN_MODULES}}


@dataclass(frozen=True)
class TestNames:
    """``program``: asked of the program. ``imports``: name → (module, attribute or empty), imported by the
    test's own process. ``free``: every name that the test code uses and does not bind."""

    program: tuple[str, ...]
    imports: dict[str, tuple[str, str]]
    free: tuple[str, ...]


@dataclass(frozen=True)
class _Reference:
    defined: frozenset[str]
    imported: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


@lru_cache(maxsize=512)
def test_names(code: str, entry_point: str | None, references: tuple[str, ...]) -> TestNames:
    """Sort the free global names of test code.

    A name stands for the program when it is the entry point, or every reference defines it at top
    level, or it is neither a builtin nor a module. Raises SyntaxError when the code does not compile.
    """
    free = free_names(code)
    known = [_read_reference(source) for source in references]
    defined = frozenset.intersection(*[r.defined for r in known]) if known else frozenset[str]()
    program: set[str] = {entry_point} if entry_point else set()
    imports: dict[str, tuple[str, str]] = {}
    for name in free:
        imported = next((r.imported[name] for r in known if name in r.imported), None)
        if name == entry_point or name in defined:
            program.add(name)
        elif imported is not None:
            imports[name] = imported
        elif hasattr(builtins, name):
            continue
        elif name in sys.stdlib_module_names or name in _CONVENTIONAL:
            imports[name] = (_CONVENTIONAL.get(name, name), "")
        else:
            program.add(name)
    return TestNames(tuple(sorted(program)), imports, tuple(sorted(free)))


def free_names(code: str) -> set[str]:
    """Names that code reads from its globals without ever binding them there."""
    top = symtable.symtable(code, "<test>", "exec")
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    used = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            if symbol.is_global():
                (bound if symbol.is_assigned() or symbol.is_imported() else used).add(symbol.get_name())
    return used - bound


@lru_cache(maxsize=512)
def _read_reference(source: str) -> _Reference:
    """What a reference program defines and imports at top level; nothing when it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return _Reference(frozenset())
    defined: set[str] = set()
    imported: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            defined.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            defined.update(
                n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                imported[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0],
                    "",
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.update({a.asname or a.name: (node.module, a.name) for a in node.names if a.name != "*"})
    available = sys.stdlib_module_names | _KNOWN_MODULES
    usable = {name: at for name, at in imported.items() if at[0].partition(".")[0] in available}
    return _Reference(frozenset(defined), usable)

"""Which names of test code stand for the program, and which for modules. Decided before anything runs.

The decision uses the problem alone (its test code, its reference programs, the imports that its statement
or starter shows), never the program under test: otherwise a program could define ``abs`` or ``len`` and
forge the comparison.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import re
import sys
from dataclasses import dataclass, field
from functools import lru_cache

from whetstone.judge.kinds.apart import shown_files
from whetstone.syntax import nodes, parsed, symbols

# Third-party modules that a reference may import and test code then use without importing.
_KNOWN_MODULES = frozenset({"numpy", "pandas", "scipy", "sympy"})
# What test code that uses them without importing means by these names. Were they asked of the program, its
# class `np` with an `allclose` of its own would decide the test.
_CONVENTIONAL = {"np": "numpy", "pd": "pandas", **{name: name for name in _KNOWN_MODULES}}
_IMPORT = re.compile(r"^[ \t]*(?:>>>[ \t]*)?((?:import|from)[ \t]+[\w.]+(?:[ \t,][^\n#;]*)?)$", re.M)
_DEFINITION = re.compile(r"^([ \t]*)(?:>>>[ \t]*)?(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.M)
# A function that a text names without defining it: in quotes, or called in an example.
_NAMED = re.compile(r"`(\w+)(?:\([^`\n]*\))?`|^[ \t]*(?:assert|>>>)[ \t]+(\w+)[ \t]*\(", re.M)
_CLASS = re.compile(r"^[ \t]*(?:>>>[ \t]*)?class[ \t]+(\w+)", re.M)
_CLASS_OF_TIMES = frozenset(dir(datetime.datetime)) - frozenset(dir(datetime))


@dataclass(frozen=True)
class TestNames:
    """``program``: asked of the program; ``classes``: those of them that are classes, as the references, the
    shown texts or the test code tell, whatever the program makes of them. ``imports``: name → (module,
    attribute or empty), imported by the test's own process. ``free``: every name that the test code uses and
    does not bind."""

    program: tuple[str, ...]
    classes: tuple[str, ...]
    imports: dict[str, tuple[str, str]]
    free: tuple[str, ...]


@dataclass(frozen=True)
class _Reference:
    defined: frozenset[str]
    classes: frozenset[str] = frozenset()
    imported: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


@lru_cache(maxsize=512)
def test_names(
    code: str,
    entry_point: str | None,
    references: tuple[str, ...],
    shown: tuple[str, ...],
    packages: frozenset[str],
) -> TestNames:
    """Sort the free global names of test code. ``shown`` are texts that programs see, or ``naming_lines``;
    ``packages`` are the modules that the test's process can import beside Python's own.

    A name stands for the program when it is the entry point, or every reference defines it at top
    level, or ``shown`` defines it so and no reference does without it, or it is neither imported by a
    reference or by ``shown``, nor a builtin, nor used as a module. Where that leaves the program nothing, the
    builtins that ``shown`` names stand for the program. Raises NotPython when the code does not compile.
    """
    free = free_names(code)
    known = [_read_reference(source, packages) for source in references]
    defined = frozenset.intersection(*[r.defined for r in known]) if known else frozenset[str]()
    shown_here = _shown_definitions(shown)
    if known:  # which may show that the test means a builtin of that name
        shown_here &= frozenset[str]().union(*(r.defined | r.imported.keys() for r in known))
    defined |= shown_here
    shows = _shown_imports(shown, packages)
    program: set[str] = {entry_point} if entry_point else set()
    imports: dict[str, tuple[str, str]] = {}
    for name in free:
        imported = next((r.imported[name] for r in known if name in r.imported), shows.get(name))
        if name == entry_point or name in defined:
            program.add(name)
        elif imported is not None:
            imports[name] = imported
        elif hasattr(builtins, name):
            continue
        elif (module := _as_used(name, code)) is not None:
            imports[name] = module
        else:
            program.add(name)
    if not program:
        program = {name for name in free if hasattr(builtins, name)} & _shown_names(shown)
    if not program and shows:
        # Nothing would be tested: what the texts import is what the program is to write, or not to use.
        return test_names(code, entry_point, references, (), packages)
    classes = frozenset(_CLASS.findall("\n".join(shown))).union(
        *(r.classes for r in known), _as_classes(code)
    )
    return TestNames(tuple(sorted(program)), tuple(sorted(program & classes)), imports, tuple(sorted(free)))


def _as_classes(code: str) -> set[str]:
    """Names that test code uses as classes: in ``isinstance``."""
    found: set[str] = set()
    for node in nodes(code):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id=name)]):
                found.add(name)
            case _:
                pass
    return found


def _as_used(name: str, code: str) -> tuple[str, str] | None:
    """What a module's name stands for that test code uses without importing it; None for the program's."""
    if name not in sys.stdlib_module_names and name not in _CONVENTIONAL:
        return None
    called, attributes = _uses(code).get(name, (False, frozenset[str]()))
    if name == "datetime" and (called or attributes & _CLASS_OF_TIMES):
        return name, name
    # No module can be called: a function of this name is what is tested, or what the program imports.
    return None if called else (_CONVENTIONAL.get(name, name), "")


@lru_cache(maxsize=512)
def _uses(code: str) -> dict[str, tuple[bool, frozenset[str]]]:
    """Of every name in the code: whether it is called, and which of its attributes are used."""
    called: set[str] = set()
    attributes: dict[str, set[str]] = {}
    for node in nodes(code):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                called.add(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                attributes.setdefault(name, set()).add(attribute)
            case _:
                pass
    return {
        name: (name in called, frozenset(attributes.get(name, ()))) for name in called | attributes.keys()
    }


def naming_lines(*texts: str) -> str:
    """What these texts import, define, name, and put in quotes as a file's name.

    That is all that judging reads of them. Of names, only those of builtins matter.
    """
    found = [f"'{name}'" for name in shown_files("\n".join(texts))]
    for text in texts:
        found += [match.group().strip() for match in _IMPORT.finditer(text)]
        # With its indentation, which says whether it is inside another one.
        found += [match.group() for match in _DEFINITION.finditer(text)]
        found += [f"`{name}`" for name in sorted(_shown_names((text,))) if hasattr(builtins, name)]
    return "\n".join(found)


@lru_cache(maxsize=512)
def _shown_imports(texts: tuple[str, ...], packages: frozenset[str]) -> dict[str, tuple[str, str]]:
    """What the lines of these texts that are imports bind, but for names that the texts define themselves."""
    lines = [line.strip() for text in texts for line in _IMPORT.findall(text)]
    found: dict[str, tuple[str, str]] = {}
    for line in lines:
        found.update(_read_reference(line, packages).imported)
    defined = {name for text in texts for _, name in _DEFINITION.findall(text)}
    return {name: where for name, where in found.items() if name not in defined}


def _shown_definitions(texts: tuple[str, ...]) -> frozenset[str]:
    """Names that these texts define, but not inside another definition, as a class does its methods."""
    found: set[str] = set()
    for text in texts:
        outer: list[int] = []
        for indentation, name in _DEFINITION.findall(text):
            column = len(indentation.expandtabs())
            while outer and outer[-1] >= column:
                outer.pop()
            if not outer:
                found.add(name)
            outer.append(column)
    return frozenset(found)


def _shown_names(texts: tuple[str, ...]) -> set[str]:
    """Names that these texts put in backquotes, or call in an example."""
    return {quoted or called for text in texts for quoted, called in _NAMED.findall(text)}


def free_names(code: str) -> set[str]:
    """Names that code reads from its globals without ever binding them there."""
    top = symbols(code)
    found = top.get_symbols()
    bound = {s.get_name() for s in found if s.is_assigned() or s.is_imported()}
    used = {s.get_name() for s in found if s.is_referenced()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            if symbol.is_global():
                (bound if symbol.is_assigned() or symbol.is_imported() else used).add(symbol.get_name())
    return used - bound


@lru_cache(maxsize=512)
def _read_reference(source: str, packages: frozenset[str]) -> _Reference:
    """What a reference program defines and imports at top level; nothing when it does not parse."""
    if (tree := parsed(source)) is None:
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
    available = sys.stdlib_module_names | _KNOWN_MODULES | packages
    usable = {name: at for name, at in imported.items() if at[0].partition(".")[0] in available}
    classes = frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return _Reference(frozenset(defined), classes, usable)

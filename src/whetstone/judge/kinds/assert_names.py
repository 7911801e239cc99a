"""Sort the names of test code into those of the program and those of modules, before anything runs.

The decision uses the problem alone (its test code, its reference programs, the imports that its statement or
starter shows), never the program under test. Otherwise a program could define ``abs`` or ``len`` and forge
the comparison.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import re
import sys
from dataclasses import dataclass, field
from functools import lru_cache

from whetstone.core.syntax import nodes, parsed, symbols
from whetstone.judge.kinds.assert_code import shown_files

# Third-party modules that a reference may import, and that test code then uses without an import.
_KNOWN_MODULES = frozenset({"numpy", "pandas", "scipy", "sympy"})
# The modules that test code means by these names if it does not import them. If they stood for the program,
# its class `np` with an `allclose` of its own could decide the test.
_CONVENTIONAL = {"np": "numpy", "pd": "pandas", **{name: name for name in _KNOWN_MODULES}}
_IMPORT = re.compile(r"^[ \t]*(?:>>>[ \t]*)?((?:import|from)[ \t]+[\w.]+(?:[ \t,][^\n#;]*)?)$", re.M)
_DEFINITION = re.compile(r"^([ \t]*)(?:>>>[ \t]*)?(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.M)
# A function that a text mentions without a definition: in backquotes, or in an example call.
_MENTION = re.compile(r"`(\w+)(?:\([^`\n]*\))?`|^[ \t]*(?:assert|>>>)[ \t]+(\w+)[ \t]*\(", re.M)
_CLASS = re.compile(r"^[ \t]*(?:>>>[ \t]*)?class[ \t]+(\w+)", re.M)
_DATETIME_CLASS_ATTRIBUTES = frozenset(dir(datetime.datetime)) - frozenset(dir(datetime))


@dataclass(frozen=True)
class _TestNames:
    """The names of test code, sorted.

    program: names that stand for the program.
    classes: those of them that are classes, according to the references, the shown texts or the test code.
        What the program defines has no influence.
    imports: name → (module, attribute or empty). The test process imports them itself.
    free: all names that the test code uses and does not bind.
    """

    program: tuple[str, ...]
    classes: tuple[str, ...]
    imports: dict[str, tuple[str, str]]
    free: tuple[str, ...]


@dataclass(frozen=True)
class _Reference:
    defined: frozenset[str]
    classes: frozenset[str] = frozenset()
    imported: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


@lru_cache(maxsize=2048)
def test_names(
    code: str,
    entry_point: str | None,
    references: tuple[str, ...],
    shown: tuple[str, ...],
    packages: frozenset[str],
) -> _TestNames:
    """Sort the free global names of test code. Raises NotPython if the code does not compile.

    shown: texts that programs see, or ``naming_lines``.
    packages: modules that the test process can import in addition to the standard library.

    A name stands for the program if it is the entry point or if every reference defines it at top level. It
    also does if ``shown`` defines it and at least one reference, if there are any, defines or imports it.
    Finally, it does if neither a reference nor ``shown`` imports it, and it is neither a builtin nor used as
    a module. If no name is left for the program, the builtins that ``shown`` mentions stand for it.
    """
    free = free_names(code)
    contents = [_read_reference(source, packages) for source in references]
    defined = frozenset.intersection(*[r.defined for r in contents]) if contents else frozenset[str]()
    shown_definitions = _shown_definitions(shown)
    # If the references do without a definition of this name, the test may mean the builtin.
    if contents:
        shown_definitions &= frozenset[str]().union(*(r.defined | r.imported.keys() for r in contents))
    defined |= shown_definitions
    shows = _shown_imports(shown, packages)
    program: set[str] = {entry_point} if entry_point else set()
    imports: dict[str, tuple[str, str]] = {}
    for name in free:
        imported = next((r.imported[name] for r in contents if name in r.imported), shows.get(name))
        if name == entry_point or name in defined:
            program.add(name)
        elif imported is not None:
            imports[name] = imported
        elif hasattr(builtins, name):
            continue
        elif (module := _module_used_as(name, code)) is not None:
            imports[name] = module
        else:
            program.add(name)
    if not program:
        program = {name for name in free if hasattr(builtins, name)} & _mentioned_names(shown)
    if not program and shows:
        # Without a name of the program nothing would be tested. The names that the texts import must be the
        # program's then.
        return test_names(code, entry_point, references, (), packages)
    classes = frozenset(_CLASS.findall("\n".join(shown))).union(
        *(r.classes for r in contents), _names_used_as_classes(code)
    )
    return _TestNames(tuple(sorted(program)), tuple(sorted(program & classes)), imports, tuple(sorted(free)))


def _names_used_as_classes(code: str) -> set[str]:
    """Return the names that test code passes to ``isinstance`` as classes."""
    found: set[str] = set()
    for node in nodes(code):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id=name)]):
                found.add(name)
            case _:
                pass
    return found


def _module_used_as(name: str, code: str) -> tuple[str, str] | None:
    """Return the module that a name stands for where test code does not import it.

    None for a name of the program.
    """
    if name not in sys.stdlib_module_names and name not in _CONVENTIONAL:
        return None
    called, attributes = _uses(code).get(name, (False, frozenset[str]()))
    if name == "datetime" and (called or attributes & _DATETIME_CLASS_ATTRIBUTES):
        return name, name
    # A module cannot be called. A called name is the tested function, or one that the program imports.
    return None if called else (_CONVENTIONAL.get(name, name), "")


@lru_cache(maxsize=2048)
def _uses(code: str) -> dict[str, tuple[bool, frozenset[str]]]:
    """Return for each name in the code whether it is called, and which of its attributes are used."""
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
    """Return the imports, definitions, mentioned names and quoted file names in these texts, one per line.

    Judging needs nothing else of them. Of mentioned names, only builtins matter.
    """
    found = [f"'{name}'" for name in shown_files("\n".join(texts))]
    for text in texts:
        found += [match.group().strip() for match in _IMPORT.finditer(text)]
        # The indentation tells whether the definition is inside another one.
        found += [match.group() for match in _DEFINITION.finditer(text)]
        found += [f"`{name}`" for name in sorted(_mentioned_names((text,))) if hasattr(builtins, name)]
    return "\n".join(found)


@lru_cache(maxsize=2048)
def _shown_imports(texts: tuple[str, ...], packages: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Return the names that import lines of these texts bind, without names that the texts define."""
    lines = [line.strip() for text in texts for line in _IMPORT.findall(text)]
    found: dict[str, tuple[str, str]] = {}
    for line in lines:
        found.update(_read_reference(line, packages).imported)
    defined = {name for text in texts for _, name in _DEFINITION.findall(text)}
    return {name: where for name, where in found.items() if name not in defined}


def _shown_definitions(texts: tuple[str, ...]) -> frozenset[str]:
    """Return names that these texts define outside of other definitions, so without methods of classes."""
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


def _mentioned_names(texts: tuple[str, ...]) -> set[str]:
    """Return the names that these texts put in backquotes or call in an example."""
    return {quoted or called for text in texts for quoted, called in _MENTION.findall(text)}


def free_names(code: str) -> set[str]:
    """Return the names that code reads from its globals without binding them there."""
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


@lru_cache(maxsize=2048)
def _read_reference(source: str, packages: frozenset[str]) -> _Reference:
    """Return the names that a reference defines and imports at top level; none if it does not parse."""
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

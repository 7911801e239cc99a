"""What test code needs where it runs apart from the program, read from the problem alone."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import lru_cache

from whetstone.syntax import nodes

_FILE_MODULES = frozenset(
    {"os", "pathlib", "shutil", "tempfile", "sqlite3", "zipfile", "tarfile", "gzip", "bz2", "lzma", "glob"}
    | {"fileinput", "filecmp", "dbm"}
)
_FILE_NAME = re.compile(r"""["'`]([\w./ -]{1,100}[./][\w./ -]{1,100})["'`]""")


@lru_cache(maxsize=512)
def touches_files(code: str) -> bool:
    """Whether test code opens, makes, removes or looks for files, as far as its text tells."""
    for node in nodes(code):
        match node:
            case ast.Name(id="open"):
                return True
            case ast.Name(id=name) if name in _FILE_MODULES:
                return True
            case ast.Import(names=names) if any(a.name.partition(".")[0] in _FILE_MODULES for a in names):
                return True
            case ast.ImportFrom(module=str() as module) if module.partition(".")[0] in _FILE_MODULES:
                return True
            case _:
                pass
    return False


def shown_files(text: str) -> list[str]:
    """What a text that programs see puts in quotes and may be the name of a file."""
    return list(dict.fromkeys(_FILE_NAME.findall(text)))


def captures_output(code: str) -> bool:
    """Whether test code puts something in the place of the standard output."""
    return "stdout" in code


def sets_seeds(code: str) -> bool:
    """Whether test code seeds a generator of random numbers."""
    return "seed(" in code


class CannotStandApart(ValueError):
    """Test code that no program could pass in a process of its own. The text says why."""


@lru_cache(maxsize=512)
def refuse_inseparable(code: str, program: frozenset[str]) -> None:
    """Raise CannotStandApart for test code that needs one interpreter with the program.

    ``program`` are the names in the code that stand for the program.
    """
    for node in nodes(code):
        for found in _FINDERS.get(type(node), ()):
            what = found(node, program)
            if what is not None:
                line = code.splitlines()[getattr(node, "lineno", 1) - 1].strip()
                raise CannotStandApart(
                    f"the test code {what}, which needs one interpreter with the program; "
                    f"only a problem with a reference is judged in one: `{line[:80]}`"
                )


def _derives(node: ast.AST, program: frozenset[str]) -> str | None:
    if isinstance(node, ast.ClassDef):
        found = next((b.id for b in node.bases if isinstance(b, ast.Name) and b.id in program), None)
        return found and f"derives a class from `{found}`"
    return None


def _awaits(node: ast.AST, _program: frozenset[str]) -> str | None:
    awaits = isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)) or _called(node) == "asyncio.run"
    return "awaits what the program gives" if awaits else None


def _compares_types(node: ast.AST, program: frozenset[str]) -> str | None:
    match node:
        case ast.Compare(left=left, comparators=[right]):
            sides = [left, right]
        case ast.Call(func=ast.Attribute(attr="assertIs" | "assertEqual"), args=[left, right, *_]):
            sides = [left, right]
        case _:
            return None
    asks = any(_called(side) == "type" or _ends_in(side, "__class__") for side in sides)
    named = next((side.id for side in sides if isinstance(side, ast.Name) and side.id in program), None)
    return f"compares the type of an object with `{named}` (use isinstance)" if asks and named else None


def _looks_inside(node: ast.AST, program: frozenset[str]) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in _INSIDE:
            return f"reads `{name}.{attribute}`" if name in program else None
        case ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr="__class__"):
            # What a function returns may be a plain value, which has the class that it has anywhere.
            a_class = name in program and name[:1].isupper()
            return f"reads `__class__` of an object of `{name}`" if a_class else None
        case ast.Call(args=[first, *_]) if _of_program(first, program):
            called = _called(node)
            module = called.partition(".")[0]
            return f"calls {called} on the program" if module == "inspect" or called in _LOOK_INSIDE else None
        case ast.Call(func=ast.Name(id="globals")):
            return "looks for names of the program in globals()"
        case _:
            return None


def _replaces(node: ast.AST, _program: frozenset[str]) -> str | None:
    match node:
        case ast.Call(args=[ast.Constant(value=str() as target), *_]) if _called(node) in _PATCHES:
            root = target.partition(".")[0]
            known = root in sys.stdlib_module_names or root == "main"
            return f"puts a mock in the place of `{target}`" if known and target != "sys.stdout" else None
        case ast.Assign(targets=[target]):
            written = ast.unparse(target)
            changed = written == "sys.stdin" or written.startswith("os.environ[")
            return f"sets `{written}`, which the program does not see" if changed else None
        case ast.Call(func=ast.Attribute(attr="assertLogs" | "assertWarns" | "assertWarnsRegex" as name)):
            return f"waits for what the program logs or warns of (`{name}`)"
        case _:
            return None


def _called(node: ast.AST) -> str:
    """The dotted name that a call calls; empty for anything else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return ""
    named, attributes = node.func, ""
    while isinstance(named, ast.Attribute):
        named, attributes = named.value, f".{named.attr}{attributes}"
    return named.id + attributes if isinstance(named, ast.Name) else ast.unparse(node.func)


def _ends_in(node: ast.AST, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute


def _of_program(node: ast.AST, program: frozenset[str]) -> bool:
    """Whether an expression is a name of the program's, an attribute of one, or a call of one."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return isinstance(node, ast.Name) and node.id in program


_INSIDE = frozenset({"__mro__", "__bases__", "__subclasses__", "__code__", "__globals__", "__closure__"})
_PATCHES = frozenset({"patch", "mock.patch", "unittest.mock.patch"})
_LOOK_INSIDE = frozenset(
    {"pickle.dumps", "weakref.ref", "dataclasses.asdict", "dataclasses.astuple", "dataclasses.fields"}
    | {"dataclasses.replace", "asdict", "astuple"}
)
_Finder = Callable[[ast.AST, frozenset[str]], str | None]
_FINDERS: dict[type[ast.AST], tuple[_Finder, ...]] = {
    ast.ClassDef: (_derives,),
    ast.Await: (_awaits,),
    ast.AsyncFor: (_awaits,),
    ast.AsyncWith: (_awaits,),
    ast.Call: (_awaits, _compares_types, _looks_inside, _replaces),
    ast.Compare: (_compares_types,),
    ast.Attribute: (_looks_inside,),
    ast.Assign: (_replaces,),
}
"""What looks for each kind of node, in turn."""

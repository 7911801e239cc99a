"""Analysis of test code that runs in another process than the program. It uses the problem alone."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import lru_cache

from whetstone.core.syntax import nodes

# Test code that uses one of these modules may work with files. Its files are then exchanged with the program.
_FILE_MODULES = frozenset(
    {"os", "pathlib", "shutil", "tempfile", "sqlite3", "zipfile", "tarfile", "gzip", "bz2", "lzma", "glob"}
    | {"fileinput", "filecmp", "dbm"}
)
_FILE_NAME = re.compile(r"""["'`]([\w./ -]{1,100}[./][\w./ -]{1,100})["'`]""")


@lru_cache(maxsize=2048)
def touches_files(code: str) -> bool:
    """Return whether the text of test code opens, creates, deletes or searches for files."""
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
    """Return the quoted parts of a text that may be file names. Programs see the text."""
    return list(dict.fromkeys(_FILE_NAME.findall(text)))


def captures_output(code: str) -> bool:
    """Return whether test code replaces the standard output."""
    return "stdout" in code


def sets_seeds(code: str) -> bool:
    """Return whether test code seeds a random number generator."""
    return "seed(" in code


class NotSeparable(ValueError):
    """Test code that no program could pass in a process of its own. The message gives the reason."""


@lru_cache(maxsize=2048)
def refuse_inseparable(code: str, program: frozenset[str]) -> None:
    """Raise NotSeparable for test code that needs one interpreter with the program.

    ``program``: the names in the test code that stand for the program.
    """
    for node in nodes(code):
        for find in _FINDERS.get(type(node), ()):
            reason = find(node, program)
            if reason is not None:
                line = code.splitlines()[getattr(node, "lineno", 1) - 1].strip()
                raise NotSeparable(
                    f"the test code {reason}, which needs one interpreter with the program; "
                    f"only a problem with a reference is judged in one: `{line[:80]}`"
                )


# The finders return what the test code does, as the predicate of an error message, or None.
def _find_subclass(node: ast.AST, program: frozenset[str]) -> str | None:
    if isinstance(node, ast.ClassDef):
        found = next((b.id for b in node.bases if isinstance(b, ast.Name) and b.id in program), None)
        return found and f"derives a class from `{found}`"
    return None


def _find_await(node: ast.AST, _program: frozenset[str]) -> str | None:
    is_await = isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith))
    if is_await or _called_name(node) == "asyncio.run":
        return "awaits an object of the program"
    return None


def _find_type_comparison(node: ast.AST, program: frozenset[str]) -> str | None:
    match node:
        case ast.Compare(left=left, comparators=[right]):
            sides = [left, right]
        case ast.Call(func=ast.Attribute(attr="assertIs" | "assertEqual"), args=[left, right, *_]):
            sides = [left, right]
        case _:
            return None
    reads_type = any(
        _called_name(side) == "type" or (isinstance(side, ast.Attribute) and side.attr == "__class__")
        for side in sides
    )
    named = next((side.id for side in sides if isinstance(side, ast.Name) and side.id in program), None)
    return f"compares the type of an object with `{named}` (use isinstance)" if reads_type and named else None


def _find_introspection(node: ast.AST, program: frozenset[str]) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in _INTROSPECTION_ATTRIBUTES:
            return f"reads `{name}.{attribute}`" if name in program else None
        case ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr="__class__"):
            # A lowercase name is a function. It may return a plain value, whose class is the same in each
            # process.
            is_class = name in program and name[:1].isupper()
            return f"reads `__class__` of an object of `{name}`" if is_class else None
        case ast.Call(args=[first, *_]) if _refers_to_program(first, program):
            called = _called_name(node)
            module = called.partition(".")[0]
            reads_structure = module == "inspect" or called in _INTROSPECTION_CALLS
            return f"calls {called} on the program" if reads_structure else None
        case ast.Call(func=ast.Name(id="globals")):
            return "reads names of the program from globals()"
        case _:
            return None


def _find_replacement(node: ast.AST, _program: frozenset[str]) -> str | None:
    match node:
        case ast.Call(args=[ast.Constant(value=str() as target), *_]) if _called_name(node) in _PATCHES:
            root = target.partition(".")[0]
            is_known = root in sys.stdlib_module_names or root == "main"
            return f"replaces `{target}` by a mock" if is_known and target != "sys.stdout" else None
        case ast.Assign(targets=[target]):
            written = ast.unparse(target)
            is_process_state = written == "sys.stdin" or written.startswith("os.environ[")
            return f"sets `{written}`, which the program does not see" if is_process_state else None
        case ast.Call(func=ast.Attribute(attr="assertLogs" | "assertWarns" | "assertWarnsRegex" as name)):
            return f"checks logs or warnings of the program (`{name}`)"
        case _:
            return None


def _called_name(node: ast.AST) -> str:
    """Return the dotted name of the callee of a call; empty for any other node."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return ""
    named, attributes = node.func, ""
    while isinstance(named, ast.Attribute):
        named, attributes = named.value, f".{named.attr}{attributes}"
    return named.id + attributes if isinstance(named, ast.Name) else ast.unparse(node.func)


def _refers_to_program(node: ast.AST, program: frozenset[str]) -> bool:
    """Return whether an expression is a name of the program, or an attribute or a call of one."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return isinstance(node, ast.Name) and node.id in program


_INTROSPECTION_ATTRIBUTES = frozenset(
    {"__mro__", "__bases__", "__subclasses__", "__code__", "__globals__", "__closure__"}
)
_PATCHES = frozenset({"patch", "mock.patch", "unittest.mock.patch"})
_INTROSPECTION_CALLS = frozenset(
    {"pickle.dumps", "weakref.ref", "dataclasses.asdict", "dataclasses.astuple", "dataclasses.fields"}
    | {"dataclasses.replace", "asdict", "astuple"}
)
_Finder = Callable[[ast.AST, frozenset[str]], str | None]
# The finders for each type of node, in the order in which they run. With a table, a node that no finder
# handles costs one look-up.
_FINDERS: dict[type[ast.AST], tuple[_Finder, ...]] = {
    ast.ClassDef: (_find_subclass,),
    ast.Await: (_find_await,),
    ast.AsyncFor: (_find_await,),
    ast.AsyncWith: (_find_await,),
    ast.Call: (_find_await, _find_type_comparison, _find_introspection, _find_replacement),
    ast.Compare: (_find_type_comparison,),
    ast.Attribute: (_find_introspection,),
    ast.Assign: (_find_replacement,),
}

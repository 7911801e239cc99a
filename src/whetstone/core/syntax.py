"""Parses Python text without warnings, and in one thread at a time.

In CPython 3.11, the recursion depth of ``ast.parse`` and the warning filters are shared by all threads. If
threads switch inside ``ast.parse``, it can raise SystemError for correct programs.
"""

from __future__ import annotations

import ast
import re
import symtable
import threading
import unicodedata
import warnings
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from enum import Flag, auto
from functools import lru_cache
from typing import cast

_NOT_A_NAME = re.compile(r"[^\w.\s\\]++")
_MOST_PARTS = 1000
_MOST_FIELDS = 1000
# Comments and strings, also unterminated ones. A group that matches is the text of an f-string.
_STRINGS = re.compile(
    r"#[^\r\n]*+"
    r"|(f|rf|fr)?(?:"
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?|\'\'\'(?:[^\'\\]|\\.|\'(?!\'\'))*+(?:\'\'\')?'
    r'|"(?:[^"\\\r\n]|\\\r\n|\\.)*+"?|\'(?:[^\'\\\r\n]|\\\r\n|\\.)*+\'?)',
    re.IGNORECASE | re.DOTALL,
)
_MOST_MARKS = 256
_BEYOND_ASCII = re.compile(rf"[^\x00-\x7f]{{{_MOST_MARKS + 1},}}+")
_NAMES = re.compile(r"[^\W\d]\w*+")
_SCOPES = re.compile(r"\b(?:lambda|def|class|for|type)\b")
_MOST_COPIES = 4_000_000
_PARSER_LOCK = threading.RLock()
_DESCRIBING_NODES = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
_NODE_TYPES = frozenset(
    kind
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and not issubclass(kind, _DESCRIBING_NODES)
)
_LEAF_TYPES = frozenset((ast.Name, ast.Constant))


class NotPython(ValueError):
    """Text that Python 3 cannot parse, also because of NUL bytes or too deep nesting.

    line: the number of the line with the error, from 1; None if it is not known.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


@contextmanager
def parsing() -> Generator[None]:
    """Hold the lock for parsing and compiling, and suppress Python's warnings about the text."""
    with _PARSER_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parse(source: str) -> ast.Module:
    """Return the syntax tree. Raises NotPython."""
    check_cost(source)
    with _raise_not_python(), parsing():
        return ast.parse(source)


@lru_cache(maxsize=16)
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Return the cached nodes of the syntax tree, the module first. Do not change them.

    The order is that of ``ast.walk``, which is slower. Nodes that only describe another one are left out
    (``ast.Load``, ``ast.Add``). Raises NotPython.
    """
    found: list[ast.AST] = [parse(source)]
    for node in found:  # the loop appends to the list, so this is a breadth-first search
        if type(node) in _LEAF_TYPES:
            continue
        for name in node._fields:
            part = getattr(node, name, None)
            if type(part) is list:
                found += [item for item in cast("list[ast.AST]", part) if type(item) in _NODE_TYPES]
            elif isinstance(part, ast.AST) and type(part) in _NODE_TYPES:
                found.append(part)
    return tuple(found)


def parse_expression(source: str) -> ast.expr:
    """Return the syntax tree of an expression. Raises NotPython."""
    check_cost(source)
    with _raise_not_python(), parsing():
        return ast.parse(source, mode="eval").body


def symbols(source: str) -> symtable.SymbolTable:
    """Return the symbol table of a text. Raises NotPython."""
    check_cost(source)
    # CPython copies the names of the surrounding functions for each scope in them, in quadratic time.
    scopes = sum(1 for _ in _SCOPES.finditer(source))
    if scopes * len(source) > _MOST_COPIES and scopes * len(set(_NAMES.findall(source))) > _MOST_COPIES:
        raise NotPython(f"the text has more than {_MOST_COPIES} pairs of a name and a scope")
    with _raise_not_python(), parsing():
        return symtable.symtable(source, "<test>", "exec")


def check_cost(source: str) -> None:
    """Raise NotPython for text that takes CPython's parser quadratic time."""
    # CPython copies a dotted name for each of its parts, so one of 50,000 takes seconds.
    dotted = source.count(".") > _MOST_PARTS  # few programs have so many dots, so only these are split
    if dotted and any(words.count(".") > _MOST_PARTS for words in _NOT_A_NAME.split(source)):
        raise NotPython(f"a name has more than {_MOST_PARTS} parts")
    # Before Python 3.12 it reads an f-string up to a field again for each of its fields.
    if source.count("{") > _MOST_FIELDS and any(
        string[1] is not None and string[0].count("{") > _MOST_FIELDS for string in _STRINGS.finditer(source)
    ):
        raise NotPython(f"an f-string has more than {_MOST_FIELDS} fields")
    # It normalizes names, which sorts the combining marks behind a letter by insertion.
    if not source.isascii() and any(map(_has_many_marks, _BEYOND_ASCII.findall(source))):
        raise NotPython(f"a letter has more than {_MOST_MARKS} combining marks")


def _has_many_marks(text: str) -> bool:
    """Return whether more than ``_MOST_MARKS`` consecutive characters are combining marks or decompose into
    them."""
    marks = {c for c in set(text) if unicodedata.combining(unicodedata.normalize("NFKD", c)[0])}
    run = 0
    for character in text:
        run = run + 1 if character in marks else 0
        if run > _MOST_MARKS:
            return True
    return False


@contextmanager
def _raise_not_python() -> Generator[None]:
    try:
        yield
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise NotPython(str(error) or type(error).__name__, line) from None


def parsed(source: str) -> ast.Module | None:
    """Return the syntax tree, or None for text that Python 3 cannot parse."""
    try:
        return parse(source)
    except NotPython:
        return None


class _Context(Flag):
    """What surrounds a statement. The members combine; ``MODULE`` is the empty one."""

    MODULE = 0
    FUNCTION = auto()
    ASYNC = auto()
    LOOP = auto()


_REQUIRED: dict[type[ast.AST], _Context] = {
    **dict.fromkeys((ast.Return, ast.Yield, ast.YieldFrom), _Context.FUNCTION),
    **dict.fromkeys((ast.Await, ast.AsyncFor, ast.AsyncWith), _Context.ASYNC),
    **dict.fromkeys((ast.Break, ast.Continue), _Context.LOOP),
}
_OPENED: dict[type[ast.AST], _Context] = {
    ast.ClassDef: _Context.MODULE,
    ast.Lambda: _Context.FUNCTION,
    ast.FunctionDef: _Context.FUNCTION,
    ast.AsyncFunctionDef: _Context.FUNCTION | _Context.ASYNC,
}
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def is_well_placed(tree: ast.Module) -> bool:
    """Return whether no statement is misplaced, such as a ``return`` outside a function. Linear.

    ``compile`` checks the same, but it must not be used on text from a model: it copies nested ``finally``
    blocks into each other, so a page of them takes gigabytes.
    """
    waiting: list[tuple[ast.AST, _Context]] = [(tree, _Context.MODULE)]
    while waiting:
        node, context = waiting.pop()
        if _REQUIRED.get(type(node), _Context.MODULE) not in context:
            return False
        waiting += _children(node, context)
    return True


def _children(node: ast.AST, context: _Context) -> Iterator[tuple[ast.AST, _Context]]:
    body = _OPENED.get(type(node), context | _Context.LOOP if isinstance(node, _LOOPS) else context)
    for name, value in ast.iter_fields(node):
        parts = cast("list[object]", value) if isinstance(value, list) else [value]
        inner = body if name == "body" else context
        yield from ((part, inner) for part in parts if isinstance(part, ast.AST))

"""Python text as a syntax tree: quietly, and one thread at a time.

``ast.parse`` counts its depth in one place for all threads (CPython 3.11), and so does what switches warnings
off: threads that take turns inside them get SystemError for programs without a fault.
"""

from __future__ import annotations

import ast
import re
import symtable
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import cast

_NOT_A_NAME = re.compile(r"[^\w.\s\\]++")
_MOST_PARTS = 1000
_ONE_AT_A_TIME = threading.RLock()
_USES = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
_PARTS = frozenset(
    kind
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and not issubclass(kind, _USES)
)
_WITHOUT_PARTS = frozenset((ast.Name, ast.Constant))


class NotPython(ValueError):
    """Text that Python 3 cannot parse, for what reason ever: NUL bytes and absurd nesting too."""


@contextmanager
def parsing() -> Generator[None]:
    """Held while anything parses or compiles; Python's warnings of the text are not shown."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parse(source: str) -> ast.Module:
    """The syntax tree. Raises NotPython."""
    # CPython copies a dotted name for each of its parts, so one of 50,000 takes seconds.
    dotted = source.count(".") > _MOST_PARTS  # few programs have so many dots, and only those are split
    if dotted and any(words.count(".") > _MOST_PARTS for words in _NOT_A_NAME.split(source)):
        raise NotPython(f"a name has more than {_MOST_PARTS} parts")
    with _refusing(), parsing():
        return ast.parse(source)


@lru_cache(maxsize=16)
def nodes(source: str) -> tuple[ast.AST, ...]:
    """The nodes of the syntax tree, the module first: for many looks at one text, and not to be changed.

    In the order of ``ast.walk``, which takes longer, and without those that only say how another one is used
    (``ast.Load``, ``ast.Add``). Raises NotPython.
    """
    found: list[ast.AST] = [parse(source)]
    for node in found:  # which grows meanwhile
        if type(node) in _WITHOUT_PARTS:
            continue
        for name in node._fields:
            part = getattr(node, name, None)
            if type(part) is list:
                found += [item for item in cast("list[ast.AST]", part) if type(item) in _PARTS]
            elif isinstance(part, ast.AST) and type(part) in _PARTS:
                found.append(part)
    return tuple(found)


def parse_expression(source: str) -> ast.expr:
    """The syntax tree of an expression. Raises NotPython."""
    with _refusing(), parsing():
        return ast.parse(source, mode="eval").body


def symbols(source: str) -> symtable.SymbolTable:
    """The names of a text, by scope. Raises NotPython."""
    with _refusing(), parsing():
        return symtable.symtable(source, "<test>", "exec")


@contextmanager
def _refusing() -> Generator[None]:
    try:
        yield
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotPython(str(error) or type(error).__name__) from None


def parsed(source: str) -> ast.Module | None:
    """The syntax tree; None for text that Python 3 cannot parse."""
    try:
        return parse(source)
    except NotPython:
        return None

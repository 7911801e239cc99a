"""Python text as a syntax tree, one thread at a time.

``ast.parse`` counts its depth in one place for all threads (CPython 3.11, gh-106905): when threads take turns
inside it, it raises SystemError for programs without a fault.
"""

from __future__ import annotations

import ast
import threading

PARSING = threading.Lock()
"""Held while anything of validation parses."""


def parsed(source: str) -> ast.Module | None:
    """The syntax tree; None for text that Python 3 cannot parse."""
    try:
        with PARSING:
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None

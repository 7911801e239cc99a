"""The program in a reply by EvalPlus' rule (26d6d00, ``evalplus/sanitize.py``).

The longest run of lines that parses, and of that: all imports, then the classes, functions and assigned
names that the entry point needs, by the names that occur in them, each name's first definition alone. Without
any such name, the whole run.

The model works on tree-sitter's trees, this on Python's own. So quirks are reproduced: a function without a
``return`` is dropped, and so is a decorated one, and a ``from __future__`` import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import cast

from whetstone.core.syntax import NotPython, check_cost, parsed, parsing

_TERMINAL_CODES = re.compile(r"\x1b(?:[@-Z\\^_\]]|\[[0-?]*[ -/]*[@-~])")
_Definition = tuple[str, ast.stmt]
_LEAST_PARSED, _PARSED_PER_CHARACTER = 2_000_000, 10
"""Characters that are parsed for a reply, at most: so many, or so many for each of its own if that is more.
The first run found by then is the program. An answer that people would write takes a tenth of it."""
_TOKENS_PER_PARSED = 64
"""After a syntax error CPython makes tokens of all the rest, so many characters in the time of one parsed."""


def sanitized(reply: str, entry_point: str) -> str:
    """Return the program in ``reply`` for the function ``entry_point``; blank if there is none."""
    code = longest_parsable(_TERMINAL_CODES.sub("", reply))
    tree = parsed(code)
    if tree is None:
        return code
    imports, definitions = _top_level(tree)
    wanted = _reachable(entry_point, definitions)
    kept = [*imports, *(node for name, node in definitions if name in wanted)]
    lines = code.encode().split(b"\n")
    return "\n".join(_text(lines, node) for node in kept).strip() or code


def longest_parsable(text: str) -> str:
    """Return the run of at least two lines that parses with the most non-blank lines; the first such run.

    Only the first line if there are none, or if CPython would take quadratic time.
    """
    lines = text.split("\n")
    try:
        check_cost(text)
    except NotPython:
        return lines[0]
    parser = _Parser(max(_LEAST_PARSED, _PARSED_PER_CHARACTER * len(text)))
    filled = [0]
    for line in lines:
        filled.append(filled[-1] + bool(line.strip()))
    best, first, last = 0, 0, 0
    for start in range(len(lines)):
        if filled[-1] - filled[start] <= best or parser.left <= 0:
            break
        end = _longest_from(parser, lines, filled, start, best)
        if end is not None:
            best, first, last = filled[end + 1] - filled[start], start, end
    return "\n".join(lines[first : last + 1])


def _longest_from(parser: _Parser, lines: list[str], filled: list[int], start: int, best: int) -> int | None:
    """The end of the longest run from ``start`` with over ``best`` filled lines; of equals, the first."""
    end = len(lines) - 1
    found: int | None = None
    while end > start and filled[end + 1] - filled[start] > best and parser.left > 0:
        wrong = parser.wrong_line("\n".join(lines[start : end + 1]))
        if wrong is None:
            found, best = end, filled[end + 1] - filled[start] - 1
            end -= 1
        elif found is not None:
            end -= 1  # only blank lines fewer: none of them is where it is wrong
        else:
            end = min(end - 1, start + wrong - 2)
    return found


class _Parser:
    """Parses until so many characters were read."""

    def __init__(self, left: int) -> None:
        self.left = left

    def wrong_line(self, code: str) -> int | None:
        """None for code that parses; else a line, from 1, up to which no beginning of ``code`` is ruled out.

        What reaches beyond the line of a syntax error has the same error: the parser reads no further.
        """
        wrong = _wrong_line(code)
        read = len(code) if wrong is None else sum(len(line) + 1 for line in code.split("\n", wrong)[:wrong])
        self.left -= read + len(code) // _TOKENS_PER_PARSED + 1
        return wrong


def _wrong_line(code: str) -> int | None:
    try:
        with parsing():
            ast.parse(code)
    except SyntaxError as error:
        inside_string = error.msg.startswith("f-string")  # whose lines are counted from its own beginning
        return error.lineno if error.lineno and not inside_string else code.count("\n") + 1
    except (ValueError, MemoryError, RecursionError):
        return code.count("\n") + 1
    return None


def _top_level(tree: ast.Module) -> tuple[list[ast.stmt], list[_Definition]]:
    """The imports, and each name's first definition."""
    imports: list[ast.stmt] = []
    definitions: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            imports.append(node)
            continue
        name = _defined(node)
        if name is not None:
            definitions.setdefault(name, node)
    return imports, list(definitions.items())


def _defined(node: ast.stmt) -> str | None:
    """The name that a statement defines; None for one that is dropped."""
    if isinstance(node, ast.ClassDef):
        return None if node.decorator_list else node.name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        returns = any(isinstance(inner, ast.Return) for inner in ast.walk(node))
        return node.name if returns and not node.decorator_list else None
    if isinstance(node, ast.Assign):
        # Of `a, b = c` it is c that the model finds: the first name that stands by itself.
        plain = (side for side in (node.targets[0], node.value) if isinstance(side, ast.Name))
        return next((side.id for side in plain), "")
    if isinstance(node, ast.AnnAssign):
        return node.target.id if isinstance(node.target, ast.Name) else ""
    return None


def _reachable(entry_point: str, definitions: Iterable[_Definition]) -> set[str]:
    needs = {name: set(_names(node)) for name, node in definitions}
    found, waiting = {entry_point}, [entry_point]
    while waiting:
        for name in needs.get(waiting.pop(), set()) - found:
            found.add(name)
            waiting.append(name)
    return found


def _names(node: ast.AST) -> Iterator[str]:
    """Every identifier in a tree: of variables, attributes, parameters, keywords, imports and definitions."""
    for inner in ast.walk(node):
        for field, value in ast.iter_fields(inner):
            if field in ("id", "attr", "arg", "name", "asname", "module", "rest") and isinstance(value, str):
                yield from value.split(".")
            elif field in ("names", "kwd_attrs") and isinstance(value, list):
                yield from (name for name in cast("list[object]", value) if isinstance(name, str))


def _text(lines: list[bytes], node: ast.stmt) -> str:
    """Return the source text of a node; columns count bytes."""
    last, end = (node.end_lineno or node.lineno) - 1, node.end_col_offset
    part = lines[node.lineno - 1 : last + 1]
    part[-1] = part[-1][:end]
    part[0] = part[0][node.col_offset :]
    return b"\n".join(part).decode()

"""The program in a reply by EvalPlus' rule (26d6d00, ``evalplus/sanitize.py``).

The longest run of lines that parses, and of that: all imports, then the classes, functions and assigned
names that the entry point needs, by the names that occur in them, each name's first definition alone. Where
nothing of the kind is there, the run as it is.

The model works on tree-sitter's trees, this on Python's own. So quirks are reproduced: a function without a
``return`` is dropped, and so is a decorated one, and a ``from __future__`` import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import cast

from whetstone.syntax import parsed, parsing

_TERMINAL_CODES = re.compile(r"\x1b(?:[@-Z\\^_\]]|\[[0-?]*[ -/]*[@-~])")
_Definition = tuple[str, ast.stmt]


def sanitized(reply: str, entry_point: str) -> str:
    """The program in ``reply`` whose function ``entry_point`` is asked for; blank where there is none."""
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
    """The lines, at least two, that parse and hold the most lines that are not blank; the first such run.

    The first line alone where there are none.
    """
    lines = text.split("\n")
    filled = [0]
    for line in lines:
        filled.append(filled[-1] + bool(line.strip()))
    best, first, last = 0, 0, 0
    for start in range(len(lines)):
        if filled[-1] - filled[start] <= best:
            break
        end = _longest_from(lines, filled, start, best)
        if end is not None:
            best, first, last = filled[end + 1] - filled[start], start, end
    return "\n".join(lines[first : last + 1])


def _longest_from(lines: list[str], filled: list[int], start: int, best: int) -> int | None:
    """The end of the longest run from ``start`` with over ``best`` filled lines; of equals, the first."""
    end = len(lines) - 1
    found: int | None = None
    while end > start and filled[end + 1] - filled[start] > best:
        wrong = _wrong_line("\n".join(lines[start : end + 1]))
        if wrong is None:
            found, best = end, filled[end + 1] - filled[start] - 1
            end -= 1
        elif found is not None:
            end -= 1  # only blank lines fewer: none of them is where it is wrong
        else:
            end = min(end - 1, start + wrong - 2)
    return found


def _wrong_line(code: str) -> int | None:
    """None for code that parses; else a line, from 1, up to which no beginning of ``code`` is ruled out.

    What reaches beyond the line of a syntax error has the same error: the parser reads no further.
    """
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
    definitions: list[_Definition] = []
    for node in tree.body:
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            imports.append(node)
            continue
        name = _defined(node)
        if name is not None and name not in dict(definitions):
            definitions.append((name, node))
    return imports, definitions


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
    """What stands in the source for a node; columns count bytes."""
    last, end = (node.end_lineno or node.lineno) - 1, node.end_col_offset
    part = lines[node.lineno - 1 : last + 1]
    part[-1] = part[-1][:end]
    part[0] = part[0][node.col_offset :]
    return b"\n".join(part).decode()

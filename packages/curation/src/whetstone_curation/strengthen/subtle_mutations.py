"""Further kinds of change, which few inputs tell from the program: mistakes of people and models.

They serve the choice of new tests only. A mutation score does not count them, because many of them are
equivalent to the program.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import partial

from whetstone.data.validate.mutants import Change, Operator, edit

# Functions that take all items of one collection.
_OF_ITEMS = (
    "sum",
    "len",
    "sorted",
    "list",
    "tuple",
    "max",
    "min",
    "enumerate",
    "map",
    "filter",
    "Counter",
    "join",
)
_INDEXING = ("range", "enumerate", "zip", "reversed")
_FEW_ITEMS = 8
_MOST_TEXT = 40


def subtle_operators(tree: ast.Module) -> Mapping[str, Operator]:
    """Return the kinds of change for a program, by name."""
    arguments = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    assigned = [
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    names = sorted({*arguments, *assigned})
    return {
        "repetitions": _repetitions,
        "items": _items,
        "variable": partial(_variable, names=names),
        "text": _text,
    }


def _repetitions(node: ast.AST) -> list[Change]:
    """Ignore repeated items: ``sum(xs)`` as ``sum(dict.fromkeys(xs))``."""
    if isinstance(node, ast.Call) and len(node.args) in (1, 2) and not node.keywords:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return [edit(node.args, -1, _distinct(node.args[-1]))] if name in _OF_ITEMS else []
    if isinstance(node, ast.For | ast.comprehension) and not _is_index(node.iter):
        return [edit(node, "iter", _distinct(node.iter))]
    return []


def _items(node: ast.AST) -> list[Change]:
    """Loop over a part of the items: all but the first or the last, or the first few."""
    if not isinstance(node, ast.For | ast.comprehension):
        return []
    items = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
    parts = (ast.Slice(lower=ast.Constant(1)), ast.Slice(upper=ast.Constant(-1)))
    few = ast.Slice(upper=ast.Constant(_FEW_ITEMS))
    return [edit(node, "iter", ast.Subscript(items, part, ast.Load())) for part in (*parts, few)]


def _variable(node: ast.AST, names: list[str]) -> list[Change]:
    """Use another variable."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        return [edit(node, "id", name) for name in names if name != node.id]
    return []


def _text(node: ast.AST) -> list[Change]:
    """Change the capitals of a text, or leave out its first or last character."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return []
    text = node.value
    if not 0 < len(text) <= _MOST_TEXT:
        return []
    changed = {text.swapcase(), text[1:], text[:-1]} - {text}
    return [edit(node, "value", each) for each in sorted(changed)]


def _is_index(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _INDEXING


def _distinct(items: ast.expr) -> ast.expr:
    from_keys = ast.Attribute(ast.Name("dict", ast.Load()), "fromkeys", ast.Load())
    return ast.Call(from_keys, [items], [])

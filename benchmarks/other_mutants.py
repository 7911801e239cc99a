"""Mutants by operators that ``whetstone data strengthen`` does not use: slips that people and models make."""

from __future__ import annotations

import ast
import copy
import itertools
import random
from collections.abc import Callable, Iterator

from whetstone.core.syntax import parse

Change = Callable[[ast.AST], None]

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.FloorDiv: ast.Div, ast.Div: ast.FloorDiv, ast.Mod: ast.Sub, ast.Mult: ast.Pow, ast.Add: ast.Mult,
    ast.Sub: ast.Mult,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.LtE, ast.NotEq: ast.Gt, ast.Lt: ast.NotEq, ast.Gt: ast.NotEq,
    ast.GtE: ast.Eq, ast.LtE: ast.Eq,
}  # fmt: skip
_FORGETS_AGAIN = ("sum", "len", "sorted", "list", "enumerate", "max", "Counter", "count")


def other_mutants(source: str, count: int, seed: str) -> list[tuple[str, str]]:
    """Up to ``count`` pairs of a kind of change and the changed program; kinds take turns."""
    tree = parse(source)
    kinds: dict[str, list[tuple[int, Change]]] = {}
    names = _names(tree)
    for place, node in enumerate(ast.walk(tree)):
        for kind, change in _changes(node, names):
            kinds.setdefault(kind, []).append((place, change))
    draw = random.Random(seed)
    for found in kinds.values():
        draw.shuffle(found)
    seen, made = {ast.unparse(tree)}, list[tuple[str, str]]()
    for turn in itertools.zip_longest(*kinds.values()):
        for kind, one in zip(kinds, turn, strict=True):
            if one is None or len(made) >= count:
                continue
            changed = copy.deepcopy(tree)
            node = next(itertools.islice(ast.walk(changed), one[0], None))
            one[1](node)
            text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
            if text not in seen:
                seen.add(text)
                made.append((kind, text))
    return made


def _names(tree: ast.Module) -> list[str]:
    """Parameters and variables of functions."""
    found = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    found |= {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return sorted(found)


def _changes(node: ast.AST, names: list[str]) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name in names:
            for other in names:
                if other != name:
                    yield "variable", lambda n, other=other: setattr(n, "id", other)
        case ast.Constant(value=str() as text) if 0 < len(text) < 20:
            yield "text", lambda n, text=text: setattr(n, "value", text.swapcase())
            yield "text", lambda n, text=text: setattr(n, "value", text[1:])
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int() as number) if number not in (0,):
            yield "number", lambda n: setattr(n, "value", 0)
            yield "number", lambda n, number=number: setattr(n, "value", number * 2 + 3)
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            yield "arithmetic", lambda n, op=op: setattr(n, "op", _ARITHMETIC[type(op)]())
        case ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            yield "arithmetic", lambda n, op=op: setattr(n, "op", _ARITHMETIC[type(op)]())
        case ast.Compare(ops=[op, *_]) if type(op) in _COMPARISONS:
            yield "comparison", lambda n, op=op: n.ops.__setitem__(0, _COMPARISONS[type(op)]())  # pyright: ignore
        case ast.Call():
            yield from _of_call(node)
        case ast.Subscript(slice=ast.Slice()):
            yield "slice", lambda n: setattr(n, "slice", ast.Slice())
        case ast.If(orelse=[_, *_]):
            yield "branch", lambda n: setattr(n, "orelse", [])
        case ast.For(iter=iterated):
            first = ast.Slice(upper=ast.Constant(6))
            bounded = ast.Subscript(ast.Call(ast.Name("list"), [iterated], []), first, ast.Load())
            yield "loop", lambda n, bounded=bounded: setattr(n, "iter", copy.deepcopy(bounded))
        case _:
            return


def _of_call(node: ast.Call) -> Iterator[tuple[str, Change]]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if node.keywords:
        yield "keyword", lambda n: setattr(n, "keywords", [])
    if len(node.args) == 2:
        yield "order", lambda n: setattr(n, "args", n.args[::-1])  # pyright: ignore
    if len(node.args) == 1 and not node.keywords:
        if name in _FORGETS_AGAIN:
            wrapped = ast.Call(ast.Name("set"), [node.args[0]], [])
            yield "again", lambda n, wrapped=wrapped: setattr(n, "args", [copy.deepcopy(wrapped)])
        if isinstance(node.func, ast.Name):
            yield "unwrapped", _unwrap
    if isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
        yield "method", _drop_method


def _unwrap(node: ast.AST) -> None:
    """``f(x)`` as ``(x)``."""
    assert isinstance(node, ast.Call)
    node.func, node.args = _identity(), [node.args[0]]


def _drop_method(node: ast.AST) -> None:
    """``x.lower()`` as ``x``."""
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    node.args = [node.func.value]
    node.func = _identity()


def _identity() -> ast.Lambda:
    none = ast.arguments(posonlyargs=[], args=[ast.arg("same")], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(none, ast.Name("same", ast.Load()))

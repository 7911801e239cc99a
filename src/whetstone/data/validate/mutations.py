"""The kinds of change that make mutants.

Each function takes a node of a syntax tree and returns its possible changes. A change alters the node in
place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeGuard, cast

Mutate = Callable[[Any], None]
Operator = Callable[[ast.AST], list[Mutate]]

_BOUNDARIES: dict[type[ast.AST], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OPPOSITES: dict[type[ast.AST], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_ARITHMETIC: dict[type[ast.AST], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_ORDERED_OPERANDS = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_CALLS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list",
    "set": "list", "abs": "int", "sum": "len", "len": "sum", "ceil": "floor", "floor": "ceil",
    "upper": "lower", "lower": "upper", "append": "remove", "heappush": "heappop", "popleft": "pop",
    "startswith": "endswith", "endswith": "startswith", "isdigit": "isalpha", "isalpha": "isdigit",
    "lstrip": "rstrip", "rstrip": "lstrip", "find": "rfind", "bisect_left": "bisect_right",
    "bisect_right": "bisect_left", "bisect": "bisect_left", "gcd": "max", "extend": "append",
}  # fmt: skip
_TUNING = ("setrecursionlimit", "stack_size", "seed", "set_int_max_str_digits")
# A larger integer is a bound or a modulus, and one more or less rarely changes the result.
_LARGE = 10_000


def _boundary(node: ast.AST) -> list[Mutate]:
    """Replace ``<`` by ``<=``, or shift the first or last index of a ``range``."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _BOUNDARIES:
        return [partial(_set_comparison, table=_BOUNDARIES)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        # The third argument is the step, not a bound.
        ends = range(min(len(node.args), 2))
        return [partial(_shift_argument, at=at, by=by) for at in ends for by in (1, -1)]
    return []


def _comparison(node: ast.AST) -> list[Mutate]:
    """Replace a comparison by its opposite."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITES:
        return [partial(_set_comparison, table=_OPPOSITES)]
    return []


def _operator(node: ast.AST) -> list[Mutate]:
    """Replace an arithmetic, bitwise or Boolean operator."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        # `%` on text formats it, and another operator would only raise an error.
        formats = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left)
        return [] if formats else [_set_operator]
    if isinstance(node, ast.BoolOp):
        return [_set_operator]
    return []


def _operands(node: ast.AST) -> list[Mutate]:
    """Swap the operands of an operator that is not commutative."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ORDERED_OPERANDS) and not _is_text(node.left):
        return [_swap_operands]
    return []


def _constant(node: ast.AST) -> list[Mutate]:
    """Make an integer one larger or smaller, or negate a Boolean."""
    if not isinstance(node, ast.Constant):
        return []
    if type(node.value) is bool:
        return [partial(_set_constant, value=not node.value)]
    if type(node.value) is int and abs(node.value) < _LARGE:
        return [partial(_set_constant, value=node.value + by) for by in (1, -1)]
    return []


def _index(node: ast.AST) -> list[Mutate]:
    """Shift an index by one, or make a slice one element shorter or longer."""
    if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Del):
        return []
    if isinstance(node.slice, ast.Slice):
        return [partial(_shift_slice, end=end) for end in ("lower", "upper") if getattr(node.slice, end)]
    # One cannot be added to a tuple or a text.
    plain = not isinstance(node.slice, ast.Tuple) and not _is_text(node.slice)
    return [partial(_shift_index, by=by) for by in (1, -1)] if plain else []


def _condition(node: ast.AST) -> list[Mutate]:
    """Negate a condition, or remove a part of ``and`` and ``or``, or a filter."""
    changes: list[Mutate] = []
    if isinstance(node, ast.If | ast.IfExp):
        changes.append(_negate)
    if isinstance(node, ast.BoolOp):
        changes += [partial(_leave_out, at=at) for at in range(len(node.values))]
    if isinstance(node, ast.comprehension) and node.ifs:
        changes.append(_clear_filters)
    return changes


def _statement(node: ast.AST) -> list[Mutate]:
    """Remove a statement that has an effect."""
    changes: list[Mutate] = []
    for field in ("body", "orelse"):
        body: Any = getattr(node, field, None)
        if isinstance(body, list):
            statements = cast("list[ast.AST]", body)
            changes += [
                partial(_drop, field=field, at=at)
                for at, statement in enumerate(statements)
                if isinstance(statement, ast.AugAssign | ast.Break | ast.Continue)
                or (isinstance(statement, ast.Expr) and not has_no_effect(statement))
                or (isinstance(statement, ast.If) and not statement.orelse and not is_guard(statement))
            ]
    return changes


def _loop_end(node: ast.AST) -> list[Mutate]:
    """End a loop after its first iteration, or swap ``break`` and ``continue``."""
    if not isinstance(node, ast.For | ast.While):
        return []
    jumps = [at for at, inner in enumerate(node.body) if isinstance(inner, ast.Break | ast.Continue)]
    return [_break_at_end, *(partial(_swap_jump, at=at) for at in jumps)]


def _call(node: ast.AST) -> list[Mutate]:
    """Call another function of the same kind: ``max`` instead of ``min``."""
    if not isinstance(node, ast.Call):
        return []
    if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return [partial(_rename_call, name=_CALLS[node.func.id])]
    if isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS:
        return [partial(_rename_call, name=_CALLS[node.func.attr])]
    return []


# The kinds of change by name.
OPERATORS: Mapping[str, Operator] = {
    "boundary": _boundary,
    "comparison": _comparison,
    "operator": _operator,
    "operands": _operands,
    "constant": _constant,
    "index": _index,
    "condition": _condition,
    "statement": _statement,
    "leaving": _loop_end,
    "call": _call,
}


def is_guard(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether a node is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def has_no_effect(node: ast.AST) -> bool:
    """Return whether a node is a docstring, or a call such as ``sys.setrecursionlimit(…)``."""
    if not isinstance(node, ast.Expr):
        return False
    tunes = isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith(_TUNING)
    return tunes or isinstance(node.value, ast.Constant)


def _set_comparison(node: ast.Compare, table: Mapping[type[ast.AST], type[ast.cmpop]]) -> None:
    node.ops[0] = table[type(node.ops[0])]()


def _shift_argument(node: ast.Call, at: int, by: int) -> None:
    node.args[at] = _plus_one(node.args[at], by)


def _set_operator(node: ast.BinOp | ast.AugAssign | ast.BoolOp) -> None:
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    else:
        node.op = _ARITHMETIC[type(node.op)]()


def _swap_operands(node: ast.BinOp) -> None:
    node.left, node.right = node.right, node.left


def _set_constant(node: ast.Constant, value: int) -> None:
    node.value = value


def _shift_slice(node: ast.Subscript, end: str) -> None:
    setattr(node.slice, end, _plus_one(getattr(node.slice, end), 1 if end == "lower" else -1))


def _shift_index(node: ast.Subscript, by: int) -> None:
    node.slice = _plus_one(node.slice, by)


def _negate(node: ast.If | ast.IfExp) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _leave_out(node: ast.BoolOp, at: int) -> None:
    # A Boolean operator needs two operands: the neighbour replaces the operand.
    node.values[at] = node.values[at - 1] if at else node.values[1]


def _clear_filters(node: ast.comprehension) -> None:
    node.ifs = []


def _drop(node: ast.AST, field: str, at: int) -> None:
    body: list[ast.AST] = getattr(node, field)
    # A body must not become empty.
    body[at] = ast.Pass()


def _break_at_end(node: ast.For | ast.While) -> None:
    node.body.append(ast.Break())


def _swap_jump(node: ast.For | ast.While, at: int) -> None:
    node.body[at] = ast.Continue() if isinstance(node.body[at], ast.Break) else ast.Break()


def _rename_call(node: ast.Call, name: str) -> None:
    if isinstance(node.func, ast.Attribute):
        node.func.attr = name
    else:
        node.func = ast.Name(name, ast.Load())


def _plus_one(value: ast.expr, by: int) -> ast.expr:
    return ast.BinOp(value, ast.Add() if by > 0 else ast.Sub(), ast.Constant(1))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))

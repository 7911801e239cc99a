"""Mutants of a program: each is the program with one small change that usually makes it wrong.

Tests are strong if they reject mutants. Some mutants are equivalent to the program and cannot be rejected,
so a score below 1 is normal; operators and places are chosen to make few of them.

A kind of change is a function that takes a node of a syntax tree and returns its possible changes. Nothing is
changed before ``apply``, which also tells how to undo a change.
"""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard, cast

from msgspec import Struct

from whetstone.core.syntax import parsed

# With the id of a problem, this seeds its mutants. Another number would give other published shares.
MUTANT_SEED = 0
# In characters. A longer program is mostly data.
_LONGEST = 200_000


class Edit(NamedTuple):
    """A new value for the field ``at`` of a node, or for the item ``at`` of a list of nodes."""

    holder: Any
    at: str | int
    value: Any


Change = tuple[Edit, ...]
Operator = Callable[[ast.AST], list[Change]]

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


def apply(change: Change) -> Change:
    """Change the tree, and return the change that undoes it."""
    undo: list[Edit] = []
    for holder, at, value in change:
        if isinstance(at, int):
            undo.append(Edit(holder, at, holder[at]))
            holder[at] = value
        else:
            undo.append(Edit(holder, at, getattr(holder, at)))
            setattr(holder, at, value)
    return tuple(undo)


def edit(holder: Any, at: str | int, value: Any) -> Change:
    """Return the change of one field or item."""
    return (Edit(holder, at, value),)


def _boundary(node: ast.AST) -> list[Change]:
    """Replace ``<`` by ``<=``, or shift the first or last index of a ``range``."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _BOUNDARIES:
        return [edit(node.ops, 0, _BOUNDARIES[type(node.ops[0])]())]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        # The third argument is the step, not a bound.
        ends = range(min(len(node.args), 2))
        return [edit(node.args, at, _plus_one(node.args[at], by)) for at in ends for by in (1, -1)]
    return []


def _comparison(node: ast.AST) -> list[Change]:
    """Replace a comparison by its opposite."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITES:
        return [edit(node.ops, 0, _OPPOSITES[type(node.ops[0])]())]
    return []


def _operator(node: ast.AST) -> list[Change]:
    """Replace an arithmetic, bitwise or Boolean operator."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        # `%` on text formats it, and another operator would only raise an error.
        formats = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left)
        return [] if formats else [edit(node, "op", _ARITHMETIC[type(node.op)]())]
    if isinstance(node, ast.BoolOp):
        return [edit(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())]
    return []


def _operands(node: ast.AST) -> list[Change]:
    """Swap the operands of an operator that is not commutative."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ORDERED_OPERANDS) and not _is_text(node.left):
        return [(Edit(node, "left", node.right), Edit(node, "right", node.left))]
    return []


def _constant(node: ast.AST) -> list[Change]:
    """Make an integer one larger or smaller, or negate a Boolean."""
    if not isinstance(node, ast.Constant):
        return []
    if type(node.value) is bool:
        return [edit(node, "value", not node.value)]
    if type(node.value) is int and abs(node.value) < _LARGE:
        return [edit(node, "value", node.value + by) for by in (1, -1)]
    return []


def _index(node: ast.AST) -> list[Change]:
    """Shift an index by one, or make a slice one element shorter or longer."""
    if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Del):
        return []
    if isinstance(node.slice, ast.Slice):
        ends = [(end, getattr(node.slice, end), by) for end, by in (("lower", 1), ("upper", -1))]
        return [edit(node.slice, end, _plus_one(value, by)) for end, value, by in ends if value]
    # One cannot be added to a tuple or a text.
    plain = not isinstance(node.slice, ast.Tuple) and not _is_text(node.slice)
    return [edit(node, "slice", _plus_one(node.slice, by)) for by in (1, -1)] if plain else []


def _condition(node: ast.AST) -> list[Change]:
    """Negate a condition, or remove a part of ``and`` and ``or``, or a filter."""
    changes: list[Change] = []
    if isinstance(node, ast.If | ast.IfExp):
        changes.append(edit(node, "test", ast.UnaryOp(ast.Not(), node.test)))
    if isinstance(node, ast.BoolOp):
        # A Boolean operator needs two operands: the neighbour replaces the operand.
        parts = node.values
        changes += [edit(parts, at, parts[at - 1] if at else parts[1]) for at in range(len(parts))]
    if isinstance(node, ast.comprehension) and node.ifs:
        changes.append(edit(node, "ifs", []))
    return changes


def _statement(node: ast.AST) -> list[Change]:
    """Remove a statement that has an effect."""
    changes: list[Change] = []
    for field in ("body", "orelse"):
        body: Any = getattr(node, field, None)
        if isinstance(body, list):
            statements = cast("list[ast.AST]", body)
            changes += [
                # A body must not become empty.
                edit(statements, at, ast.Pass())
                for at, statement in enumerate(statements)
                if isinstance(statement, ast.AugAssign | ast.Break | ast.Continue)
                or (isinstance(statement, ast.Expr) and not has_no_effect(statement))
                or (isinstance(statement, ast.If) and not statement.orelse and not is_guard(statement))
            ]
    return changes


def _loop_end(node: ast.AST) -> list[Change]:
    """End a loop after its first iteration, or swap ``break`` and ``continue``."""
    if not isinstance(node, ast.For | ast.While):
        return []
    changes = [edit(node, "body", [*node.body, ast.Break()])]
    for at, inner in enumerate(node.body):
        if isinstance(inner, ast.Break | ast.Continue):
            changes.append(
                edit(node.body, at, ast.Continue() if isinstance(inner, ast.Break) else ast.Break())
            )
    return changes


def _call(node: ast.AST) -> list[Change]:
    """Call another function of the same kind: ``max`` instead of ``min``."""
    match node:
        case ast.Call(func=ast.Name(id=name) as function) if name in _CALLS:
            return [edit(function, "id", _CALLS[name])]
        case ast.Call(func=ast.Attribute(attr=name) as function) if name in _CALLS:
            return [edit(function, "attr", _CALLS[name])]
        case _:
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


def _plus_one(value: ast.expr, by: int) -> ast.expr:
    return ast.BinOp(value, ast.Add() if by > 0 else ast.Sub(), ast.Constant(1))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


class _Mutant(Struct, frozen=True):
    """A changed program, the kind of the change, and the line of the change."""

    source: str
    kind: str
    line: int

    @property
    def change(self) -> str:
        """A description of the change."""
        return f"{self.kind}, line {self.line}"


def mutants(
    source: str,
    count: int,
    seed: str,
    operators: Callable[[ast.Module], Mapping[str, Operator]] | None = None,
) -> list[_Mutant]:
    """Return up to ``count`` different mutants of a Python program. The seed fixes them.

    Kinds of change alternate, so that few mutants still have many kinds. Returns none for text that is not
    Python 3. operators: the kinds of change for a program, by name (default: ``OPERATORS``).
    """
    if count < 1 or len(source) > _LONGEST:
        return []
    tree = parsed(source)
    if tree is None:
        return []
    try:
        kinds = OPERATORS if operators is None else operators(tree)
        return list(itertools.islice(_mutants(tree, kinds, random.Random(seed)), count))
    except (ValueError, RecursionError, MemoryError):
        return []


def _mutants(tree: ast.Module, operators: Mapping[str, Operator], draw: random.Random) -> Iterator[_Mutant]:
    seen = {ast.unparse(tree) + "\n"}
    for line, name, change in _alternate_kinds(_changes(tree, operators), draw):
        undo = apply(change)
        try:
            text = ast.unparse(tree) + "\n"
        finally:
            # The other mutants start from the same tree.
            apply(undo)
        # Different changes may give the same program.
        if text not in seen:
            seen.add(text)
            yield _Mutant(text, name, line)


_NamedChange = tuple[int, str, Change]


def _changes(tree: ast.Module, operators: Mapping[str, Operator]) -> dict[str, list[_NamedChange]]:
    """Return all changes by their kind, each with the line of its node."""
    protected = _protected_nodes(tree)
    found: dict[str, list[_NamedChange]] = {}
    for node in ast.walk(tree):
        if id(node) in protected:
            continue
        for name, applicable in operators.items():
            for change in applicable(node):
                found.setdefault(name, []).append((getattr(node, "lineno", 0), name, change))
    return found


def _protected_nodes(tree: ast.Module) -> set[int]:
    """Return the nodes that are not changed: annotations, imports, docstrings, the guard of ``__main__``."""
    inside: set[int] = set()

    def protect(node: ast.AST | None) -> None:
        if node is not None:
            inside.update(id(inner) for inner in ast.walk(node))

    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            protect(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            protect(node.returns)
        elif isinstance(node, ast.AnnAssign):
            protect(node.annotation)
        elif isinstance(node, ast.Import | ast.ImportFrom) or has_no_effect(node):
            protect(node)
        elif is_guard(node):
            protect(node.test)
            inside.add(id(node))
    return inside


def _alternate_kinds(changes: dict[str, list[_NamedChange]], draw: random.Random) -> Iterator[_NamedChange]:
    """Yield one change of each kind in turn. The order of kinds and changes is drawn."""
    kinds = list(changes.values())
    for kind in kinds:
        _shuffle(kind, draw)
    _shuffle(kinds, draw)
    for turn in itertools.zip_longest(*kinds):
        yield from (change for change in turn if change is not None)


def _shuffle(items: list[Any], draw: random.Random) -> None:
    # Only `random()` gives the same numbers in every version of Python.
    for at in range(len(items) - 1, 0, -1):
        other = int(draw.random() * (at + 1))
        items[at], items[other] = items[other], items[at]

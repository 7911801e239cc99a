"""Mutants of a program: each is the program with one small change that usually makes it wrong.

Tests are strong if they reject mutants. Some mutants are equivalent to the program and cannot be rejected,
so a score below 1 is normal; operators and places are chosen to make few of them.
"""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from whetstone.core.syntax import parsed
from whetstone.data.validate.mutations import OPERATORS, Change, Operator, apply, has_no_effect, is_guard

# With the id of a problem, this seeds its mutants. Another number would give other published shares.
MUTANT_SEED = 0
# In characters. A longer program is mostly data.
_LONGEST = 200_000


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

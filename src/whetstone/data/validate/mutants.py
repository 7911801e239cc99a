"""Mutants of a program: each is the program with one small change that usually makes it wrong.

Tests are strong when they refuse mutants. Some mutants are equivalent to the program and cannot be
refused, so a score below 1 is normal; operators and places are chosen to make few of them.
"""

from __future__ import annotations

import ast
import copy
import itertools
import random
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from whetstone.data.validate.mutations import OPERATORS, Mutate, is_guard, says_nothing
from whetstone.syntax import parsed

_LONGEST = 200_000  # characters; a longer program is data with some code around it


class Mutant(Struct, frozen=True):
    """A changed program, and the change in words."""

    source: str
    change: str


def mutants(source: str, count: int, seed: str) -> list[Mutant]:
    """Up to ``count`` different mutants of a Python program, the same for the same seed.

    Kinds of change take turns, so that few mutants are still of many kinds. Empty for what is not Python 3.
    """
    if count < 1 or len(source) > _LONGEST:
        return []
    tree = parsed(source)
    if tree is None:
        return []
    try:
        return list(itertools.islice(_mutants(tree, random.Random(seed)), count))
    except (ValueError, RecursionError, MemoryError):
        return []


def _mutants(tree: ast.Module, draw: random.Random) -> Iterator[Mutant]:
    seen = {ast.unparse(tree) + "\n"}
    for place, name, mutate in _in_turns(_changes(tree), draw):
        changed = copy.deepcopy(tree)
        node = next(itertools.islice(ast.walk(changed), place, None))
        line = getattr(node, "lineno", 0)
        mutate(node)
        text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
        if text not in seen:
            seen.add(text)
            yield Mutant(text, f"{name}, line {line}")


_Change = tuple[int, str, Mutate]


def _changes(tree: ast.Module) -> dict[str, list[_Change]]:
    """All changes by their kind, each with the place of its node in the order of ``ast.walk``."""
    left_alone = _left_alone(tree)
    found: dict[str, list[_Change]] = {}
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in left_alone:
            continue
        for name, applicable in OPERATORS.items():
            for mutate in applicable(node):
                found.setdefault(name, []).append((place, name, mutate))
    return found


def _left_alone(tree: ast.Module) -> set[int]:
    """What decides nothing, or everything: annotations, imports, docstrings, the guard of ``__main__``."""
    inside: set[int] = set()

    def leave(node: ast.AST | None) -> None:
        if node is not None:
            inside.update(id(inner) for inner in ast.walk(node))

    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            leave(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            leave(node.returns)
        elif isinstance(node, ast.AnnAssign):
            leave(node.annotation)
        elif isinstance(node, ast.Import | ast.ImportFrom) or says_nothing(node):
            leave(node)
        elif is_guard(node):
            leave(node.test)
            inside.add(id(node))
    return inside


def _in_turns(changes: dict[str, list[_Change]], draw: random.Random) -> Iterator[_Change]:
    """One change of each kind after the other, kinds and changes in an order that is drawn."""
    kinds = list(changes.values())
    for kind in kinds:
        _shuffle(kind, draw)
    _shuffle(kinds, draw)
    for turn in itertools.zip_longest(*kinds):
        yield from (change for change in turn if change is not None)


def _shuffle(items: list[Any], draw: random.Random) -> None:
    # Only `random()` is promised to give the same numbers in every version of Python.
    for at in range(len(items) - 1, 0, -1):
        other = int(draw.random() * (at + 1))
        items[at], items[other] = items[other], items[at]

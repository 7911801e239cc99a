"""Which programs may show the order of a set, and the hash seeds under which they are therefore run.

Text has other hashes under another seed, and with them a set has another order. Judging uses one seed; so a
program whose output depends on it would pass there, or fail, for ever.
"""

from __future__ import annotations

import ast

from whetstone.data.validate.policy import Policy
from whetstone.data.validate.runs import is_python
from whetstone.problem import Program
from whetstone.syntax import parsed

_SETS = {"set", "frozenset", "hash"}
_VIEWS = {"keys", "items"}


def hash_seeds(program: Program, policy: Policy) -> list[int]:
    """The seeds of a reference's runs: one for each, and for one that makes sets as many as are wanted."""
    runs = max(policy.repeats, policy.hash_seeds if makes_sets(program) else 1)
    return list(range(runs))


def makes_sets(program: Program) -> bool:
    """Whether a program may hold a set. One that cannot be read holds none: it does not run either."""
    tree = parsed(program.source) if is_python(program) else None
    return tree is not None and any(_is_set(node) for node in ast.walk(tree))


def _is_set(node: ast.AST) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp):  # the keys of one dictionary that are also another's
        return any(
            isinstance(side, ast.Call) and isinstance(side.func, ast.Attribute) and side.func.attr in _VIEWS
            for side in (node.left, node.right)
        )
    return isinstance(node, ast.Name) and node.id in _SETS

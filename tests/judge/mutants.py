"""One-change mutants of a program: each is the program with a single small, usually fatal, change."""

from __future__ import annotations

import ast
import copy
import random
import subprocess
import sys
from collections.abc import Callable, Iterator

from whetstone.core.problem import AssertTests, Problem

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutants(source: str, count: int, random_source: random.Random) -> Iterator[str]:
    """Yield up to ``count`` different one-change mutants of ``source``, drawn without replacement."""
    tree = ast.parse(source)
    changes = [(place, change) for place, node in enumerate(ast.walk(tree)) for change in _changes_of(node)]
    random_source.shuffle(changes)
    seen = {ast.unparse(tree)}
    for place, change in changes:
        if count == 0:
            return
        mutant = copy.deepcopy(tree)
        change(list(ast.walk(mutant))[place])
        text = ast.unparse(ast.fix_missing_locations(mutant))
        if text not in seen:
            seen.add(text)
            count -= 1
            yield text


def _changes_of(node: ast.AST) -> list[Callable[[ast.AST], None]]:
    """The changes that apply to a node; each alters the node it is called with in place."""
    changes: list[Callable[[ast.AST], None]] = []
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
        changes.append(_swap_operator)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        changes.append(_swap_comparison)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        changes.append(_off_by_one)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        changes.append(_flip)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        changes.append(_negate_condition)
    if isinstance(node, ast.Return) and node.value is not None:
        changes.append(_return_none)
    if isinstance(node, ast.FunctionDef | ast.For | ast.If | ast.While) and len(node.body) > 1:
        changes.append(_drop_last_statement)
    return changes


def _swap_operator(node: ast.AST) -> None:
    node.op = _SWAPS[type(node.op)]()  # type: ignore[attr-defined]


def _swap_comparison(node: ast.AST) -> None:
    node.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[attr-defined]


def _off_by_one(node: ast.AST) -> None:
    node.value += 1  # type: ignore[attr-defined]


def _flip(node: ast.AST) -> None:
    node.value = not node.value  # type: ignore[attr-defined]


def _negate_condition(node: ast.AST) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)  # type: ignore[attr-defined]


def _return_none(node: ast.AST) -> None:
    node.value = ast.Constant(None)  # type: ignore[attr-defined]


def _drop_last_statement(node: ast.AST) -> None:
    node.body.pop()  # type: ignore[attr-defined]


def plainly_right(problem: Problem, source: str) -> bool:
    """Program and test in one plain interpreter, as the benchmark itself runs them."""
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    if tests.check:
        code = f"{source}\n{tests.check}\ncheck({tests.entry_point})\n"
    else:
        code = "\n".join([source, tests.setup, *(tests.asserts or [])])
    try:
        run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, timeout=300)
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0

"""LeetCodeDataset: LeetCode's problems with generated tests, which become call tests.

Linked lists and trees, which the tests build, are call tests too. Other test code stays asserts.
"""

from __future__ import annotations

import ast
import re

from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Problem, Program
from whetstone.core.syntax import NotPython, parse, parse_expression
from whetstone.data.sources.check_code import calls_in_check
from whetstone.data.sources.row_problem import known
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, Skip, dict_of, list_of, text_of

_ENTRY = re.compile(r"Solution\(\)\.(\w+)")
_NODES = ("ListNode", "TreeNode", "Node")


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of LeetCodeDataset."""
    # Before v0.3.0, the facts about a problem were in this column.
    older = dict_of(row, "meta", default={})
    entry = _ENTRY.fullmatch(text_of(row, "entry_point"))
    if entry is None:
        raise ColumnError("entry_point", "something else", "Solution().NAME")
    prelude, function = text_of(row, "prompt"), entry[1]
    starter = text_of(row, "starter_code", default=str(older.get("lang_code") or "")).rstrip()
    check = _check(text_of(row, "test"))
    tests = calls_in_check(check, "Solution", function)
    meta = known(
        licence=source.licence,
        url=f"https://leetcode.com/problems/{own_id}/",
        difficulty=str(row.get("difficulty") or older.get("difficulty") or "").lower(),
        tags=list_of(row, "tags", default=[]),
        question_id=row.get("question_id") or older.get("question_id"),
        contest_date=str(row.get("estimated_date") or "")[:10],
    )
    if tests is None:
        called = _Called(parse_expression(f"Solution().{function}"))
        written = [ast.unparse(called.visit(statement)) for statement in check.body]
        tests = AssertTests(setup=prelude, asserts=written, entry_point="Solution")
        starter = f"{_node_classes(prelude)}\n\n\n{starter}"
        meta[COMPLETES_STARTER] = True
    return Problem(
        id=f"{source.name}/{own_id}",
        statement=text_of(row, "problem_description", default=str(older.get("question_title") or "")),
        tests=tests,
        starter=starter or None,
        references=[Program("python", f"{prelude}\n{text_of(row, 'completion')}")],
        source=source.name,
        meta=meta,
    )


def _check(test: str) -> ast.FunctionDef:
    """Return ``def check(candidate)``, which contains only asserts."""
    try:
        body = parse(test).body
    except NotPython as error:
        raise Skip("malformed_tests", f"`test` is not Python code: {error}") from None
    check = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    if check is None:
        raise ColumnError("test", "text without it", "Python code that defines check(candidate)")
    if not all(isinstance(node, ast.Assert) for node in check.body):
        raise Skip("malformed_tests", "check() has more than asserts")
    return check


class _Called(ast.NodeTransformer):
    """Replaces ``candidate`` in a test by a call of the method."""

    def __init__(self, method: ast.expr) -> None:
        self._method = method

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._method if node.id == "candidate" else node


def _node_classes(prelude: str) -> str:
    """Return the classes of nodes that LeetCode defines for a program."""
    found = [
        ast.get_source_segment(prelude, node) or ""
        for node in parse(prelude).body
        if isinstance(node, ast.ClassDef) and node.name in _NODES
    ]
    return "\n\n\n".join(["from typing import *", *found])

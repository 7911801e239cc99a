"""Compiling test code so that a failure is put down before the program can learn of it: see ``record``."""

from __future__ import annotations

import ast
from opcode import opmap
from types import CodeType
from typing import Any

HOOK = "__failing__"
"""The name by which rewritten test code calls ``Record.evaluating``."""
# `assert` loads its exception; without a message it raises it at once, a constant one it calls it with.
_ASSERTION = opmap["LOAD_ASSERTION_ERROR"]
_RAISE, _CONSTANT = bytes([opmap["RAISE_VARARGS"]]), bytes([opmap["LOAD_CONST"]])
_CALLS = [bytes([opmap[name]]) for name in ("PRECALL", "CALL") if name in opmap]


class TestCodeError(Exception):
    """The test code does not compile, needs a module that is not here, or holds no test."""


def compiled(source: str, name: str, hooks: bool = False) -> Any:
    """The code object of test code; with ``hooks``, one that says so when it fails. Raises TestCodeError."""
    try:
        code = compile(source, name, "exec", dont_inherit=True)
        if hooks and _shows_failures(code, source):
            return compile(_with_hooks(ast.parse(source)), name, "exec", dont_inherit=True)
        return code
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TestCodeError(f"the test code does not compile: {error}") from None


def _with_hooks(tree: ast.Module) -> ast.Module:
    """Test code that says so before it evaluates what is shown of a failure."""
    for node in ast.walk(tree):
        shown = _shown(node)
        if shown is None:
            continue
        begin, end = (_call(value, shown) for value in (True, False))
        wrapped = ast.Subscript(ast.Tuple([begin, shown, end], ast.Load()), ast.Constant(1), ast.Load())
        ast.fix_missing_locations(ast.copy_location(wrapped, shown))
        if isinstance(node, ast.Assert):
            node.msg = wrapped
        elif isinstance(node, ast.Raise):
            node.exc = wrapped
        elif isinstance(node, ast.Call):
            node.args[0] = wrapped
    return tree


def _shows_failures(code: CodeType, source: str) -> bool:
    """Whether test code may evaluate something once it is failing. Cheaper than looking at its syntax."""
    if "raise" in source or ".fail(" in source:
        return True
    todo = [code]
    while todo:
        part = todo.pop()
        operations = part.co_code[::2]
        at = operations.find(_ASSERTION)
        while at >= 0:
            after = operations[at + 1 : at + 3]
            if after[:1] != _RAISE and (after[:1] != _CONSTANT or after[1:] not in _CALLS):
                return True
            at = operations.find(_ASSERTION, at + 1)
        todo.extend(c for c in part.co_consts if isinstance(c, CodeType))
    return False


def _shown(node: ast.AST) -> ast.expr | None:
    """What is still to be evaluated of a failing assertion, or of an exception of the test's own."""
    if isinstance(node, ast.Assert):
        return None if node.msg is None or isinstance(node.msg, ast.Constant) else node.msg
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return None if all(isinstance(a, ast.Constant) for a in node.exc.args) else node.exc
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fail":
        return None if not node.args or isinstance(node.args[0], ast.Constant | ast.Starred) else node.args[0]
    return None


def _call(value: bool, where: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name(HOOK, ast.Load()), [ast.Constant(value)], [])
    return ast.copy_location(call, where)

"""Compile test code so that it records a failure before the program can learn of it.

See ``result_recorder``.
"""

from __future__ import annotations

import ast
from opcode import opmap
from types import CodeType
from typing import Any

# The name under which rewritten test code calls ``ResultRecorder.set_evaluating``.
HOOK = "__failing__"
# The bytecode of `assert` loads AssertionError, from Python 3.14 on as one of several constants. Without a
# message it raises it at once; with a constant message it first calls it. Any other sequence evaluates an
# expression after the failure.
_LOAD_ASSERTION_ERROR = opmap.get("LOAD_ASSERTION_ERROR", opmap.get("LOAD_COMMON_CONSTANT", -1))
_RAISE, _CONSTANT = bytes([opmap["RAISE_VARARGS"]]), bytes([opmap["LOAD_CONST"]])
_CALLS = [bytes([opmap[name]]) for name in ("PRECALL", "CALL") if name in opmap]


class TestCodeError(Exception):
    """The test code does not compile, needs a module that is not installed, or contains no test."""


def compile_test_code(source: str, name: str, hooks: bool = False) -> Any:
    """Return the code object of test code. With ``hooks``, it reports its failures. Raises TestCodeError."""
    try:
        code = compile(source, name, "exec", dont_inherit=True)
        if hooks and _runs_code_after_failure(code, source):
            return compile(_with_hooks(ast.parse(source)), name, "exec", dont_inherit=True)
        return code
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TestCodeError(f"the test code does not compile: {error}") from None


def _with_hooks(tree: ast.Module) -> ast.Module:
    """Wrap the expressions that are evaluated after a failure, so that the code reports the failure first."""
    for node in ast.walk(tree):
        expression = _expression_after_failure(node)
        if expression is None:
            continue
        begin, end = (_hook_call(value, expression) for value in (True, False))
        wrapped = ast.Subscript(ast.Tuple([begin, expression, end], ast.Load()), ast.Constant(1), ast.Load())
        ast.fix_missing_locations(ast.copy_location(wrapped, expression))
        if isinstance(node, ast.Assert):
            node.msg = wrapped
        elif isinstance(node, ast.Raise):
            node.exc = wrapped
        elif isinstance(node, ast.Call):
            node.args[0] = wrapped
    return tree


def _runs_code_after_failure(code: CodeType, source: str) -> bool:
    """Return whether test code may evaluate an expression after a failure. Faster than parsing it."""
    if "raise" in source or ".fail(" in source:
        return True
    pending = [code]
    while pending:
        part = pending.pop()
        operations = part.co_code[::2]
        at = operations.find(_LOAD_ASSERTION_ERROR)
        while at >= 0:
            after = operations[at + 1 : at + 3]
            if after[:1] != _RAISE and (after[:1] != _CONSTANT or after[1:] not in _CALLS):
                return True
            at = operations.find(_LOAD_ASSERTION_ERROR, at + 1)
        pending.extend(c for c in part.co_consts if isinstance(c, CodeType))
    return False


def _expression_after_failure(node: ast.AST) -> ast.expr | None:
    """Return the expression that a failing assertion or an exception of the test still evaluates."""
    if isinstance(node, ast.Assert):
        return None if node.msg is None or isinstance(node.msg, ast.Constant) else node.msg
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return None if all(isinstance(a, ast.Constant) for a in node.exc.args) else node.exc
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fail":
        return None if not node.args or isinstance(node.args[0], ast.Constant | ast.Starred) else node.args[0]
    return None


def _hook_call(value: bool, where: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name(HOOK, ast.Load()), [ast.Constant(value)], [])
    return ast.copy_location(call, where)

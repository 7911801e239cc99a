"""Checks that tests and programs have the same form; faulty sets mix them.

Functions and programs that read standard input need different tests, and so do functions of different
signatures. Such problems would also fail their references; this names the cause.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whetstone.core.problem import CallCase, CallTests, Problem, StdinTests
from whetstone.core.syntax import parsed
from whetstone.data.validate.cases import describe_cases
from whetstone.data.validate.reasons import DefectFlag

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def form_flags(problem: Problem) -> Iterator[DefectFlag]:
    """Yield flags for tests that no program of the references' form can pass."""
    tests = problem.tests
    trees = [tree for source in _python_sources(problem) if (tree := parsed(source)) is not None]
    if isinstance(tests, StdinTests):
        if trees and all(_only_defines(tree) for tree in trees):
            yield DefectFlag(
                "mixed_kinds", "the tests are of standard input; the references only define functions"
            )
    elif isinstance(tests, CallTests) and tests.function is not None:
        signatures = [found for tree in trees if (found := _function(tree, tests)) is not None]
        odd = [n for n, case in enumerate(tests.cases) if signatures and not _fits(case, signatures)]
        if odd and len(odd) < len(tests.cases):
            yield DefectFlag(
                "mixed_kinds", f"the function does not take the arguments of {describe_cases(odd)}"
            )
        if trees and not signatures and all(_reads_only(tree) for tree in trees):
            yield DefectFlag("mixed_kinds", "the tests call a function; the references read standard input")


def _python_sources(problem: Problem) -> list[str]:
    return [program.source for program in problem.references if program.language.startswith("python")]


def _only_defines(tree: ast.Module) -> bool:
    """Return whether a program has only imports, definitions and constants, so that it reads and prints
    nothing."""
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body) and all(
        isinstance(node, _DEFINES)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign | ast.AnnAssign) and not _calls(node))
        for node in tree.body
    )


def _reads_only(tree: ast.Module) -> bool:
    """Return whether a program reads standard input and defines no function or class to call."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
    return not defines and ("input" in names or "stdin" in attributes)


def _calls(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def _function(tree: ast.Module, tests: CallTests) -> ast.arguments | None:
    """Return the parameters of the function that the tests call; None if it has no plain definition."""
    body = tree.body
    if tests.class_ is not None:
        owners = [node for node in body if isinstance(node, ast.ClassDef) and node.name == tests.class_]
        if not owners:
            return None
        body = owners[-1].body
    found = [node for node in body if isinstance(node, _Function) and node.name == tests.function]
    # A decorator may change the parameters.
    if not found or found[-1].decorator_list:
        return None
    return found[-1].args


def _fits(case: CallCase, signatures: list[ast.arguments]) -> bool:
    return any(_takes(signature, case) for signature in signatures)


def _takes(signature: ast.arguments, case: CallCase) -> bool:
    """Return whether the function accepts the positional arguments of a case. Keywords are assumed to fill
    the others."""
    names = [argument.arg for argument in (*signature.posonlyargs, *signature.args)]
    if names[:1] == ["self"]:
        names = names[1:]
    needed = len(names) - len(signature.defaults)
    enough = len(case.args) + len(case.kwargs) >= needed
    return enough and (signature.vararg is not None or len(case.args) <= len(names))

"""Find the hidden tests that code without a solution can pass, so that they cannot seal a task.

A test may compare a telling value only after an assertion at which the base fails, although the base gives
that value. A program then needs the value of the first assertion only, and that one may be a truth value. So
the tests run once more in a form that goes on after each failure. They run with the base, and with the
changed function replaced by bodies that return a constant or an argument.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from whetstone.core.syntax import parse
from whetstone.judge.repository.base import Files
from whetstone.judge.repository.constants import FunctionNode
from whetstone.judge.repository.grader import RepositoryGrader, TestCommand
from whetstone.judge.repository.observations import ExpectedTest
from whetstone.judge.repository.sealing import OBSERVER
from whetstone.judge.repository.task import RepositoryTask

# The tests take at most this part of a task's CPU limit with the reference.
HEADROOM = 3
FUNCTION = "function"
"""The key of a task's ``meta`` that names the function which was changed."""
_CONSTANTS = ("None", "True", "False", "0", "''", "[]", "{}")
_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Assert, ast.With)


def sealed_tests(grader: RepositoryGrader, task: RepositoryTask, base: Files) -> list[ExpectedTest]:
    """Return the tests of ``fail_to_pass`` that need a telling value which no trivial code gives.

    Raises SandboxFault.
    """
    modules = {path: _without_stops(source) for path, source in task.tests.items()}
    command = TestCommand([*modules], task.python_path, task.plugins)
    limits = msgspec.structs.replace(task.limits, cpu_s=task.limits.cpu_s / HEADROOM)
    left = [test for test in task.fail_to_pass if test.is_sealed(())]
    for files in (base, *_trivial_versions(task, base)):
        if not left:
            break
        # A run that a limit ends shows what the tests before it observe.
        _, report = grader.run_tests(files, modules, command, limits)
        left = [test for test in left if test.is_sealed(report.runs.get(test.id, ()))]
    return left


def _trivial_versions(task: RepositoryTask, base: Files) -> Iterator[Files]:
    """Yield the base with each trivial body in the function of a task; nothing if the task names none."""
    for path, text in task.reference.items():
        tree = parse(text or "")
        function = _function(tree, task.meta.get(FUNCTION, ""))
        if function is None:
            continue
        given = function.args
        names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        for result in dict.fromkeys((*_CONSTANTS, *names[:2], *names[-1:])):
            function.body = parse(f"def f(): return {result}").body[0].body  # type: ignore[attr-defined]
            yield {**base, path: ast.unparse(tree).encode()}


def _function(tree: ast.Module, name: str) -> FunctionNode | None:
    """Return a function at the top of a module, or the method of a class there; None without it."""
    owner, _, own = name.rpartition(".")
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) and node.name == owner else []
        for each in inner if owner else [node]:
            if isinstance(each, FunctionNode) and each.name == own:
                return each
    return None


def _without_stops(source: str) -> str:
    """Return a sealed module whose tests go on after each statement that fails."""
    return ast.unparse(ast.fix_missing_locations(_GoesOn().visit(parse(source))))


class _GoesOn(ast.NodeTransformer):
    """Puts the statements of functions into ``try``. An assertion that fails reports something else."""

    def __init__(self) -> None:
        self._is_inside = False

    def visit(self, node: ast.AST) -> ast.AST:
        """Change a node and what is in it."""
        outer, self._is_inside = self._is_inside, self._is_inside or isinstance(node, FunctionNode)
        self.generic_visit(node)
        self._is_inside = outer
        if not (outer and isinstance(node, _STATEMENTS)) or any(map(_leaves, ast.walk(node))):
            return node
        instead: ast.stmt = ast.Pass()
        match node:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(observer), _), [ast.Constant(hole), *_])) if (
                observer == OBSERVER
            ):
                instead = parse(f"{OBSERVER}.truth({hole}, True)").body[0]
            case _:
                pass
        # Failures of pytest are no subclasses of Exception.
        handler = ast.ExceptHandler(ast.Name("BaseException", ast.Load()), None, [instead])
        return ast.Try([node], [handler], [], [])


def _leaves(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom | ast.Await)

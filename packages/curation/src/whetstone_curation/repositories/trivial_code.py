"""Find the hidden tests that code without a solution can pass, so that they cannot seal a task.

A test may compare a telling value only after an assertion at which the base fails, although the base gives
that value. A program then needs the value of the first assertion only, and that one may be a truth value. So
the tests run once more in a form that goes on after each failure. They run with the base, and with bodies
that return a constant or an argument in the functions that the reference changes.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import msgspec

from whetstone.core.syntax import NotPython, parse, parse_expression, parsing
from whetstone.judge.repository.base import Files
from whetstone.judge.repository.constants import FunctionNode
from whetstone.judge.repository.grader import RepositoryGrader, TestCommand
from whetstone.judge.repository.observations import ExpectedTest, TestRun
from whetstone.judge.repository.sealing import OBSERVER
from whetstone.judge.repository.task import RepositoryTask

# The tests take at most this part of a task's CPU limit with the reference.
HEADROOM = 3
_ARGUMENTS = (0, 1, 2)
_CONSTANTS = ("None", "True", "False", "0", "''", "[]", "{}")
_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Assert, ast.With)


def sealed_tests(grader: RepositoryGrader, task: RepositoryTask, base: Files) -> list[ExpectedTest]:
    """Return the tests of ``fail_to_pass`` that need a telling value which no trivial code gives.

    Raises SandboxFault.
    """
    modules = {path: _without_stops(source) for path, source in task.tests.items()}
    command = TestCommand([*modules], task.python_path, task.plugins)
    limits = msgspec.structs.replace(task.limits, cpu_s=task.limits.cpu_s / HEADROOM)
    seen: dict[str, list[TestRun]] = {}
    for files in (base, *_trivial_versions(task, base)):
        # A run that a limit ends shows what the tests before it observe.
        _, report = grader.run_tests(files, modules, command, limits)
        for name, runs in report.runs.items():
            seen.setdefault(name, []).extend(runs)
    return [test for test in task.fail_to_pass if test.is_sealed(seen.get(test.id, ()))]


def _trivial_versions(task: RepositoryTask, base: Files) -> Iterator[Files]:
    """Yield the base with a trivial body in every function that the reference changes."""
    changed = {path: _changed_functions(base.get(path, b""), text) for path, text in task.reference.items()}
    changed = {path: names for path, names in changed.items() if names}
    for result in (*_CONSTANTS, *_ARGUMENTS) if changed else ():
        yield {**base, **{path: _with_result(base[path], names, result) for path, names in changed.items()}}


def _changed_functions(before: bytes, after: str | None) -> set[str]:
    """Return the names of the functions of a module that its new text has not, or not in this form."""
    try:
        old, new = (
            {name: ast.dump(node) for name, node in _functions(parse(text))}
            for text in (before.decode(), after or "")
        )
    except (NotPython, UnicodeDecodeError):
        return set()
    return {name for name in old if new.get(name) != old[name]}


def _functions(tree: ast.Module) -> Iterator[tuple[str, FunctionNode]]:
    """Yield the functions at the top of a module and the methods of the classes there, with their names."""
    for node in tree.body:
        owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, FunctionNode):
                yield owner + each.name, each


def _with_result(source: bytes, names: Collection[str], result: str | int) -> bytes:
    """Return a module whose functions of these names return a constant, or the argument with a number."""
    tree = parse(source.decode())
    for name, function in _functions(tree):
        if name in names:
            given = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
            value = result if isinstance(result, str) else next(iter(given[result:]), "None")
            function.body = [ast.Return(parse_expression(value))]
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def _without_stops(source: str) -> str:
    """Return a sealed module whose tests go on after each statement that fails."""
    with parsing():
        tree = ast.parse(source)  # of any size that was sealed
    return ast.unparse(ast.fix_missing_locations(_GoesOn().visit(tree)))


class _GoesOn(ast.NodeTransformer):
    """Puts the statements of functions into ``try``. An assertion that fails reports something else."""

    def __init__(self) -> None:
        self._is_inside = False

    def visit(self, node: ast.AST) -> ast.AST:
        """Change a node and what is in it."""
        outer, self._is_inside = self._is_inside, self._is_inside or isinstance(node, FunctionNode)
        if not _expects_failure(node):
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


def _expects_failure(node: ast.AST) -> bool:
    """Return whether a statement is a ``with pytest.raises(...)``, or one like it."""
    return isinstance(node, ast.With) and any(
        "raises" in ast.unparse(item.context_expr).lower() for item in node.items
    )


def _leaves(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom | ast.Await)

"""Convert pytest tests to assert tests: each test function becomes one case.

The test module becomes the setup, without its imports of the solution, whose names refer to the program. Of
pytest, ``raises``, ``approx``, ``param`` and ``mark.parametrize`` are supported. Tests that need more are
rejected.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from whetstone.core.problem import AssertTests
from whetstone.core.syntax import NotPython, parse
from whetstone.core.toml_files import read_toml
from whetstone.data.sources.source import Skip

_HELPERS: str = read_toml("whetstone.data.sources", "test_code.toml", dict[str, Any])["pytest"].strip()
# The supported names of pytest, with their keywords. `raises` passes others to the function that it calls.
_SUPPORTED: dict[str, frozenset[str] | None] = {
    "raises": None,
    "approx": frozenset({"rel", "abs", "nan_ok"}),
    "param": frozenset({"id"}),
}
_UNSUPPORTED_RAISES = frozenset({"expected_exception", "check", "message"})
_INFO_ATTRIBUTES = frozenset({"value", "type", "match", "typename"})


def pytest_tests(module: str) -> AssertTests:
    """Return the tests of a pytest module that imports the tested names from the module ``solution``.

    Raises Skip("malformed_tests") for text that is not Python or has no test, Skip("needs_pytest") for tests
    that use fixtures or other parts of pytest.
    """
    if "stdout" in module or "capsys" in module:
        raise Skip("captures_output", "the tests read captured output, which needs the program's process")
    tree = _parse(module)
    tree.body = [node for node in tree.body if not _is_dropped(node)]
    # `from solution import a as b` becomes an assignment.
    every = ast.walk(_parse(module))
    imports = [node for node in every if isinstance(node, ast.ImportFrom) and node.module == "solution"]
    aliases = [f"{name.asname} = {name.name}" for node in imports for name in node.names if name.asname]
    # Parameters may need pytest, too. The decorators with them are removed later.
    for mark in [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_parametrize(node)]:
        _check_supported(ast.Module([ast.Expr(argument) for argument in mark.args], []))
    units = [unit for node in tree.body for unit in _test_calls(node, "pytest.param" in module)]
    if not units:
        raise Skip("malformed_tests", "there is no test function")
    tree = ast.fix_missing_locations(_Attributes().visit(tree))
    _check_supported(tree)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    uses_pytest = "pytest" in names or "pytest.param" in module
    setup = "\n".join([*aliases, ast.unparse(tree)])
    return AssertTests(setup=f"{_HELPERS}\n\n\n{setup}" if uses_pytest else setup, asserts=units)


def _parse(module: str) -> ast.Module:
    try:
        return parse(module)
    except NotPython as error:
        raise Skip("malformed_tests", f"the tests are not Python code: {error}") from None


def _is_dropped(node: ast.stmt) -> bool:
    """Return whether a statement is removed: imports of the solution and of pytest, and code of the main
    module."""
    match node:
        case ast.ImportFrom(module=module, level=level):
            if module == "pytest":
                raise Skip("needs_pytest", "the tests import names from pytest")
            # A relative import can only be of the solution's package.
            return module == "solution" or bool(level)
        case ast.Import(names=names):
            kept = [alias for alias in names if alias.name not in ("solution", "pytest")]
            if len(kept) < len(names) and any(alias.asname for alias in names if alias not in kept):
                raise Skip("needs_pytest", "the tests import the solution or pytest by another name")
            node.names = kept
            return not kept
        case ast.If(test=ast.Compare(left=ast.Name("__name__"))):
            return True
        case _:
            return False


class _Attributes(ast.NodeTransformer):
    """Replaces ``solution.name`` by ``name``, and removes decorators of pytest."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "solution":
            return ast.Name(node.attr, node.ctx)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = [mark for mark in node.decorator_list if not _is_parametrize(mark)]
        self.generic_visit(node)
        return node


def _test_calls(node: ast.stmt, uses_param: bool) -> Iterator[str]:
    """Yield the calls that run the tests of a statement.

    ``uses_param``: values of parameters may be in a ``param``.
    """
    if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test"):
        raise Skip("needs_pytest", f"`{node.name}` is a coroutine, which plain pytest does not run either")
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
        yield _test_call(node, node.name, uses_param, skip=0)
    if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
        if node.decorator_list:
            raise Skip("needs_pytest", f"`{node.name}` has decorators")
        if any(ast.unparse(base) not in ("object",) for base in node.bases):
            raise Skip("needs_pytest", f"`{node.name}` is derived from another class")
        methods = [method for method in node.body if isinstance(method, ast.FunctionDef)]
        names = {method.name for method in methods}
        if names & {"setup_class", "teardown_method", "teardown_class", "__init__"}:
            raise Skip("needs_pytest", f"`{node.name}` has its own set-up")
        # pytest creates a new object for each test, and calls this before it.
        before = "_object.setup_method()\n" if "setup_method" in names else ""
        for method in methods:
            if method.name.startswith("test"):
                call = _test_call(method, f"_object.{method.name}", uses_param, skip=1)
                yield f"_object = {node.name}()\n{before}{call}"


def _test_call(function: ast.FunctionDef, called: str, uses_param: bool, skip: int) -> str:
    """Return the code that runs a test function, over all its parameters if it has some."""
    parameters = [argument.arg for argument in function.args.args][skip:]
    marks = [mark for mark in function.decorator_list if _is_parametrize(mark)]
    # Several `parametrize` marks multiply, and other decorators may do anything.
    if len(marks) < len(function.decorator_list) or len(marks) > 1:
        raise Skip("needs_pytest", f"`{function.name}` has decorators")
    if not marks:
        if parameters:
            raise Skip("needs_pytest", f"`{function.name}` needs the fixture `{parameters[0]}`")
        return f"{called}()"
    names, values = _parameters_of(marks[0])
    if sorted(names) != sorted(parameters):
        raise Skip("needs_pytest", f"`{function.name}` uses fixtures in addition to its parameters")
    # `parametrize` passes a single parameter without a tuple.
    given = f"{names[0]}=_case" if len(names) == 1 else f"**dict(zip({names!r}, _case))"
    if len(names) == 1 and uses_param:
        given += "[0] if isinstance(_case, pytest.param) else _case"
    return f"for _case in {ast.unparse(values)}:\n    {called}({given})"


def _is_parametrize(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.parametrize"


def _parameters_of(mark: ast.expr) -> tuple[list[str], ast.expr]:
    if isinstance(mark, ast.Call) and any(keyword.arg != "ids" for keyword in mark.keywords):
        raise Skip("needs_pytest", "`parametrize` has keywords other than `ids`")
    match mark:
        case ast.Call(args=[ast.Constant(str() as names), values]):
            return [name.strip() for name in names.split(",") if name.strip()], values
        case ast.Call(args=[ast.List(items) | ast.Tuple(items), values]):
            written: list[Any] = [item.value for item in items if isinstance(item, ast.Constant)]
            return [str(name) for name in written], values
        case _:
            raise Skip("needs_pytest", "`parametrize` is called in another way")


def _info_name(item: ast.withitem) -> str | None:
    """Return the name that `with pytest.raises(…) as name` binds."""
    match item:
        case ast.withitem(ast.Call(func=ast.Attribute(ast.Name("pytest"), "raises")), ast.Name(name)):
            return name
        case _:
            return None


def _check_supported(tree: ast.Module) -> None:
    infos = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if (name := _info_name(item))
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name("pytest"), attr=name) if name not in _SUPPORTED:
                raise Skip("needs_pytest", f"the tests use pytest.{name}")
            case ast.Call(func=ast.Attribute(value=ast.Name("pytest"), attr=name), keywords=keywords) if (
                name in _SUPPORTED
            ):
                given, known = {keyword.arg or "**" for keyword in keywords}, _SUPPORTED[name]
                odd = given & _UNSUPPORTED_RAISES if known is None else given - known
                if odd:
                    raise Skip("needs_pytest", f"the tests call pytest.{name} with `{min(odd)}`")
            case ast.Attribute(value=ast.Name(name), attr=attribute) if (
                name in infos and attribute not in _INFO_ATTRIBUTES
            ):
                raise Skip("needs_pytest", f"the tests read `{name}.{attribute}` of pytest.raises")
            case ast.ImportFrom(module="solution") | ast.Import(names=[ast.alias(name="solution")]):
                raise Skip("needs_pytest", "the tests import the solution inside a function")
            case _:
                pass

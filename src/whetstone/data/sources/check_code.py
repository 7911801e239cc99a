"""Convert test code that runs after the program to ``call`` tests, if it only compares returned values.

Datasets write one script: ``def check(candidate)`` with asserts and a last line that calls it
(LeetCodeDataset and sets derived from it), or lists of inputs and outputs and a loop over them (Code-R1). As
``call`` tests every assert is a separate case, and no test code runs in the program's process. Other code
stays test code.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, cast

from msgspec import UNSET

from whetstone.core.asserted_call import NOT_CONSTANT, check_parameter, read_asserted_call
from whetstone.core.call_tests import RETURNED, NodeForm
from whetstone.core.problem import AssertTests, CallCase, CallTests
from whetstone.core.syntax import NotPython, parse
from whetstone.data.sources.source import Skip

_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_NOT_PLAIN = object()
_LISTS: dict[NodeForm, NodeForm] = {"ListNode": "list[ListNode]", "TreeNode": "list[TreeNode]"}


def script_tests(code: str) -> CallTests | AssertTests:
    """Return tests equivalent to ``code``. Raises Skip if it does not compile or asserts nothing."""
    tree = _parse(code)
    *before, last = tree.body or [ast.Pass()]
    target = _check_target(last)
    if target is not None:
        check = next((n for n in before if isinstance(n, ast.FunctionDef) and n.name == "check"), None)
        tests = calls_in_check(check, *target) if check is not None else None
        if tests is not None:
            return tests
    elif isinstance(last, ast.For):
        tests = _loop_tests(before, last)
        if tests is not None:
            return tests
    return _as_asserts(tree)


def calls_in_check(check: ast.FunctionDef, owner: str | None, function: str) -> CallTests | None:
    """Return the tests of ``def check(candidate)`` if it contains only ``assert candidate(…) == value``.

    Linked lists and trees are built by ``list_node`` and ``tree_node``, and compared by ``is_same_list`` and
    ``is_same_tree``, as in LeetCodeDataset. None for other code.
    """
    # With more arguments, it is not known what they are called with.
    candidate = check_parameter(check) or ""
    nodes: dict[str, NodeForm] = {}
    cases: list[CallCase] = []
    for statement in check.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            # A docstring.
            continue
        plain, forms = _plain_assert(statement)
        case = asserted_case(plain, candidate)
        if case is None or any(nodes.get(place, form) != form for place, form in forms.items()):
            return None
        nodes |= forms
        cases.append(case)
    try:
        return CallTests(cases, function=function, class_=owner, nodes=nodes or UNSET) if cases else None
    except ValueError:
        return None


def _plain_assert(statement: ast.stmt) -> tuple[ast.stmt, dict[str, NodeForm]]:
    """Return an assert with lists in place of nodes, and the forms of the nodes by their places."""
    match statement:
        case ast.Assert(test=ast.Compare(left=ast.Call() as call, ops=[operator], comparators=[value])):
            pass
        case ast.Assert(
            test=ast.Call(func=ast.Name(id="is_same_list" | "is_same_tree"), args=[ast.Call() as call, value])
        ):
            operator = ast.Eq()
        case _:
            return statement, {}
    forms: dict[str, NodeForm] = {}

    def plain(place: str, node: ast.expr) -> ast.expr:
        values, form = _plain_node(node)
        if form is not None:
            forms[place] = form
        return values

    args = [plain(str(place), argument) for place, argument in enumerate(call.args)]
    keywords = [ast.keyword(k.arg, plain(k.arg or "", k.value)) for k in call.keywords]
    compared = ast.Compare(ast.Call(call.func, args, keywords), [operator], [plain(RETURNED, value)])
    return ast.Assert(compared), forms


def _plain_node(node: ast.expr) -> tuple[ast.expr, NodeForm | None]:
    """Return the list of ``list_node([…])``, or of a list of these, and its form."""
    match node:
        case ast.Call(func=ast.Name(id="list_node"), args=[values], keywords=[]):
            return values, "ListNode"
        case ast.Call(func=ast.Name(id="tree_node"), args=[values], keywords=[]):
            return values, "TreeNode"
        case ast.List(elts=[_, *_]):
            inner = [_plain_node(item) for item in node.elts]
            for form, of_list in _LISTS.items():
                if all(found == form for _, found in inner):
                    return ast.List([values for values, _ in inner], ast.Load()), of_list
            return node, None
        case _:
            return node, None


def asserted_case(statement: ast.stmt, candidate: str) -> CallCase | None:
    """Return the case of ``assert candidate(arguments) == value``; None for other statements or values."""
    if not isinstance(statement, ast.Assert) or not isinstance(statement.test, ast.Compare):
        return None
    found = read_asserted_call(statement.test)
    if found is None or found.name != candidate or found.relation not in ("equal", "is"):
        return None
    # With the value on the left, its type compares, and not that of the result.
    if found.call is not statement.test.left:
        return None
    args, kwargs = _jsonable(found.args, tuples=False), _jsonable(found.kwargs, tuples=False)
    # A compared value may be a tuple, which equals the list; an argument may not.
    expected = _jsonable(found.expected, tuples=True)
    if any(value is _NOT_PLAIN for value in (expected, args, kwargs)):
        return None
    return CallCase(expected=expected, args=args, kwargs=kwargs)


def _parse(code: str) -> ast.Module:
    try:
        return parse(code)
    except NotPython as error:
        raise Skip("broken_tests", f"the test code does not compile: {error}") from None


def _check_target(last: ast.stmt) -> tuple[str | None, str] | None:
    """Return (class, function) that a line ``check(function)`` or ``check(Solution().method)`` tests."""
    match last:
        case ast.Expr(value=ast.Call(func=ast.Name(id="check"), args=[target], keywords=[])):
            return callee(target)
        case _:
            return None


def callee(target: ast.expr) -> tuple[str | None, str] | None:
    """Return (class, function) of ``function`` or ``Class().method``; None for anything else."""
    match target:
        case ast.Name(id=name):
            return None, name
        case ast.Attribute(value=ast.Call(func=ast.Name(id=owner), args=[], keywords=[]), attr=name):
            return owner, name
        case _:
            return None


def _jsonable(value: Any, tuples: bool) -> Any:
    """Return a value that JSON can represent, with lists in place of ``tuples``; else _NOT_PLAIN."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # JSON has no infinity.
        return value if abs(value) != float("inf") else _NOT_PLAIN
    if isinstance(value, list) or (tuples and isinstance(value, tuple)):
        items = [_jsonable(item, tuples) for item in cast("Sequence[Any]", value)]
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in items) else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in cast(dict[Any, Any], value)):
        entries = {key: _jsonable(item, tuples) for key, item in cast(dict[str, Any], value).items()}
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in entries.values()) else entries
    return _NOT_PLAIN


def _loop_tests(before: list[ast.stmt], loop: ast.For) -> CallTests | None:
    """Convert ``for i, o in zip(_inputs, _outputs): assert _deep_eq(function(*i), o)``, or ``o[0]``, to
    cases.

    Return None if an output has a float, which that comparison accepts within a tolerance.
    """
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=i), ast.Name(id=o)]),
            iter=ast.Call(func=ast.Name(id="zip"), args=[ast.Name(id=inputs), ast.Name(id=outputs)]),
            body=[
                ast.Assert(
                    test=ast.Call(
                        func=ast.Name(id="_deep_eq"),
                        args=[ast.Call(func=function, args=[ast.Starred(value=ast.Name(id=passed))]), answer],
                    )
                )
            ],
        ) if passed == i:
            pass
        case _:
            return None
    given, expected = _assigned_value(before, inputs), _assigned_value(before, outputs, returned=True)
    target = callee(function)
    if target is None or not isinstance(given, list) or not isinstance(expected, list):
        return None
    match answer:
        case ast.Name(id=name) if name == o:
            answers = cast(list[Any], expected)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=0)) if name == o and all(
            isinstance(value, list) and value for value in cast(list[Any], expected)
        ):
            answers = [value[0] for value in cast(list[Any], expected)]
        case _:
            return None
    if len(answers) != len(given) or not all(isinstance(arguments, list) for arguments in given):
        return None
    # Call tests compare floats in another way than `_deep_eq`.
    if not given or _has_float(answers):
        return None
    cases = [CallCase(expected=e, args=a) for a, e in zip(cast(list[Any], given), answers, strict=True)]
    return CallTests(cases, function=target[1], class_=target[0])


def _assigned_value(before: list[ast.stmt], name: str, returned: bool = False) -> Any:
    for statement in before:
        match statement:
            case ast.Assign(targets=[ast.Name(id=assigned)], value=value) if assigned == name:
                try:
                    return _jsonable(ast.literal_eval(value), returned)
                except NOT_CONSTANT:
                    return _NOT_PLAIN
            case _:
                continue
    return None


def _has_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_float(item) for item in cast(dict[str, Any], value).values())
    if isinstance(value, list):
        return any(_has_float(item) for item in cast(list[Any], value))
    return isinstance(value, float)


def _as_asserts(tree: ast.Module) -> AssertTests:
    """Return definitions as the setup, and each later statement as a unit, which passes if it runs to its
    end."""
    start = next((n for n, node in enumerate(tree.body) if not isinstance(node, _DEFINITIONS)), None)
    if start is None or not any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
        raise Skip("no_tests", "the test code asserts nothing")
    defined, tail = tree.body[:start], tree.body[start:]
    units = [ast.unparse(node) for node in tail]
    if any(isinstance(node, _DEFINITIONS) for node in tail):
        units = ["\n".join(units)]
    return AssertTests(setup="\n".join(map(ast.unparse, defined)), asserts=units)

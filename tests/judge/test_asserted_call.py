"""The reader of asserted calls: every way to write an assertion gives its arguments and its value."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.asserted_call import (
    NOT_CONSTANT,
    asserted_expressions,
    check_parameter,
    read_asserted_call,
    read_assertion,
)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(max_size=4) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(), inner, max_size=2)
    ),
    max_leaves=5,
)
# How an assertion about a call is written, its relation, and whether the value is the one that is written.
FORMS = [
    ("{call} == {value}", "equal"),
    ("{value} == {call}", "equal"),
    ("{call} != {value}", "unequal"),
    ("{call} is {value}", "is"),
    ("abs({call} - {value}) < 1e-06", "distance"),
    ("abs({value} - {call}) <= 1e-06", "distance"),
    ("math.isclose({call}, {value}, rel_tol=1e-09)", "close"),
    ("np.allclose({value}, {call}, 1e-05)", "close"),
    ("sorted({call}) == {value}", "equal"),
]


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@given(st.lists(values, max_size=3), st.dictionaries(st.sampled_from("abc"), values, max_size=2), values)
def test_every_form_gives_the_arguments_and_the_value(
    args: list[Any], kwargs: dict[str, Any], value: Any
) -> None:
    written = ", ".join([*map(repr, args), *(f"{name}={each!r}" for name, each in kwargs.items())])
    for function, name in (("f", "f"), ("Solution().f", "")):
        call = f"{function}({written})"
        for form, relation in FORMS:
            found = read_asserted_call(
                expression(form.format(call=call, value=repr(value))), conversions=("sorted",)
            )
            assert found is not None
            assert (found.name, found.args, found.kwargs) == (name, args, kwargs)
            assert (found.relation, found.expected) == (relation, value)
        for form, relation in ((call, "true"), (f"not {call}", "false")):
            found = read_asserted_call(expression(form))
            assert found is not None
            assert (found.args, found.relation, found.expected) == (args, relation, relation == "true")


def test_other_forms_and_computed_values_are_no_asserted_call() -> None:
    computed = ["f(x) == 1", "f(1) == x", "f(*[1]) == 2", "f(**{'a': 1}) == 2", "f({[]}) == 1"]
    twice = ["f(a=1, a=2) == 3"]
    no_call = ["x == 1", "1 == 1", "True"]
    other = ["f(1) < 2", "f(1) == 2 == 2", "f(1) in [2]", "f(1) == 2 and f(2) == 3"]
    for text in (*computed, *twice, *no_call, *other):
        assert read_asserted_call(expression(text)) is None, text


def test_tolerances_keep_their_names() -> None:
    for text, tolerance in (
        ("abs(f(1) - 2) < 0.5", [("<", "0.5")]),
        ("abs(f(1) - 2) <= 0.5", [("<=", "0.5")]),
        ("isclose(f(1), 2, 3, abs_tol=4)", [("2", "3"), ("abs_tol", "4")]),
    ):
        found = read_assertion(expression(text)).tolerance
        assert [(name, ast.unparse(node)) for name, node in found] == tolerance
    assert read_assertion(expression("math.isclose(f(1), 2)")).function == "math.isclose"


def test_the_caller_of_the_reader_evaluates_constants() -> None:
    def evaluate(node: ast.expr) -> Any:
        return {1, 2} if ast.unparse(node) == "set([1, 2])" else ast.literal_eval(node)

    test = expression("set([1, 2]) == f(3)")
    found = read_asserted_call(test, evaluate)
    assert found is not None
    assert (found.args, found.expected) == ([3], {1, 2})
    with pytest.raises(NOT_CONSTANT):
        read_assertion(test).split()


def test_unittest_methods_assert_the_same_expressions() -> None:
    plain = "assert f(1) == 2\nassert f(3)\nassert not f(4)"
    methods = "self.assertEqual(f(1), 2)\nself.assertTrue(f(3))\nself.assertFalse(f(4), 'message')"
    assert [*map(ast.unparse, asserted_expressions(ast.parse(plain)))] == [
        *map(ast.unparse, asserted_expressions(ast.parse(methods)))
    ]


def test_check_has_one_plain_parameter() -> None:
    for parameters, name in (("candidate", "candidate"), ("f", "f"), ("", None), ("f, g", None)):
        function = ast.parse(f"def check({parameters}): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        assert check_parameter(function) == name
    for parameters in ("f=1", "*f", "f, *, g", "**f"):
        function = ast.parse(f"def check({parameters}): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        assert check_parameter(function) is None

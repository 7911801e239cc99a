"""Test code that runs after a program: as calls where it only compares values, else as it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.problem import AssertTests, CallCase, CallTests
from whetstone.data.sources.check_code import script_tests
from whetstone.data.sources.source import Skip

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=2),
    max_leaves=5,
)
EQUAL = "def _deep_eq(a, b): return a == b\n"


def check(*lines: str, call: str = "check(f)") -> str:
    return "\n".join(["def check(candidate):", *(f"    {line}" for line in lines), call])


@given(st.lists(st.tuples(st.lists(values, max_size=2), values, values), min_size=1, max_size=3))
def test_asserts_of_values_become_cases(pairs: list[tuple[list[Any], Any, Any]]) -> None:
    lines = [f"assert candidate(*{args!r}, k={k!r}) == {e!r}" for args, k, e in pairs]
    spelt = [
        f"assert candidate({', '.join([*map(repr, args), f'k = {k!r}'])}) == {e!r}" for args, k, e in pairs
    ]
    assert script_tests(check(*spelt, call="check(Solution().f)")) == CallTests(
        [CallCase(e, args, {"k": k}) for args, k, e in pairs], function="f", class_="Solution"
    )
    assert isinstance(script_tests(check(*lines)), AssertTests)


def test_a_returned_tuple_is_the_list_and_messages_are_left_out() -> None:
    for line, case in (
        ("assert candidate(1) == (1, [2, (3,)])", CallCase([1, [2, [3]]], [1])),
        ("assert candidate() is None", CallCase(None)),
        ("assert candidate(-1) == 2, 'a message'", CallCase(2, [-1])),
        ("assert candidate('a' 'b') == True", CallCase(True, ["ab"])),
    ):
        assert script_tests(check('"""Checks."""', line)) == CallTests([case], function="f")


NOT_PLAIN = [
    "assert candidate((1, 2)) == 3", "assert candidate(1) == {1, 2}", "assert candidate({1: 2}) == 3",
    "assert candidate(1) == float('inf')", "assert candidate(1e999) == 1",
    "assert candidate(**{'a': 1}) == 1",
    "assert candidate(1) != 2", "assert candidate(1) < 2", "assert 1 == candidate(2)", "assert other(1) == 2",
    "assert abs(candidate(1) - 0.5) < 1e-6", "assert sorted(candidate(1)) == [1]",
    "assert candidate(1) == candidate(2)", "result = candidate(1)\n    assert result == 2",
    "for n in range(3): assert candidate(n) == n",
]  # fmt: skip


def test_code_that_does_more_than_compare_values_stays_test_code() -> None:
    for line in NOT_PLAIN:
        tests = script_tests(check("assert candidate(0) == 0", line))
        assert isinstance(tests, AssertTests), line
        assert tests.asserts == ["check(f)"]
        assert tests.setup.startswith("def check(candidate):\n    assert candidate(0) == 0\n")


def loop(inputs: str, outputs: str, answer: str = "o", call: str = "f(*i)") -> str:
    return (
        f"_inputs = {inputs}\n_outputs = {outputs}\n{EQUAL}"
        f"for i, o in zip(_inputs, _outputs):\n    assert _deep_eq({call}, {answer})"
    )


def test_a_loop_over_inputs_and_outputs_becomes_cases() -> None:
    pairs = [CallCase([2], [1]), CallCase([4, 5], [2])]
    assert script_tests(loop("[[1], [2]]", "[[2], (4, 5)]")) == CallTests(pairs, function="f")
    assert script_tests(loop("[[1], [2]]", "[[[2]], [[4, 5]]]", "o[0]")) == CallTests(pairs, function="f")
    solved = script_tests(loop("[[1], [2]]", "[[2], [4, 5]]", call="Solution().f(*i)"))
    assert solved == CallTests(pairs, function="f", class_="Solution")


def test_other_loops_and_those_with_a_tolerance_stay_test_code() -> None:
    for script in (
        loop("[[1]]", "[0.5]"),
        loop("[[1]]", "[[1, {'a': 0.5}]]"),
        loop("[[1], [2]]", "[1]"),
        loop("[]", "[]"),
        loop("[1]", "[1]"),
        loop("[[1]]", "[1]", "o[0]"),
        loop("[[1]]", "[[1]]", "o[1]"),
        loop("[[1]]", "[1]", call="f(i)"),
        loop("range(3)", "[1]"),
    ):
        tests = script_tests(script)
        assert isinstance(tests, AssertTests)
        assert tests.asserts is not None
        assert tests.asserts[0].startswith("for i, o in zip(_inputs, _outputs):")
        assert "_deep_eq" in tests.setup


def test_statements_after_definitions_are_units_of_their_own() -> None:
    tests = script_tests("import math\nlimit = 3\nassert f(1) == 1\nassert f(2) == limit")
    assert tests == AssertTests(
        setup="import math\nlimit = 3", asserts=["assert f(1) == 1", "assert f(2) == limit"]
    )
    mixed = script_tests("assert f(1) == 1\nx = f(2)\nassert x == 4")
    assert mixed == AssertTests(asserts=["assert f(1) == 1\nx = f(2)\nassert x == 4"])


def test_code_that_tests_nothing_is_skipped() -> None:
    for code, reason in (
        ("", "no_tests"),
        ("def check(candidate):\n    pass", "no_tests"),
        ("def check(candidate):\n    assert candidate(1) == 1", "no_tests"),
        ("print(f(1))", "no_tests"),
        ("assert f(1 ==", "broken_tests"),
    ):
        with pytest.raises(Skip) as skip:
            script_tests(code)
        assert skip.value.reason == reason

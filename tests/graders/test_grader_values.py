"""The value rules of LiveCodeBench and EvalPlus decide as those graders do, their faults included.

EvalPlus' rule rests on ``numpy.allclose``, which is asked itself; the rest is written down a second time from
the graders' own description. Nothing here says that the rules are good.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whetstone.core.problem import CallCase, CallTests, Compare, Problem, Program
from whetstone.judge import Judge
from whetstone.judge.answers.comparisons import add_comparisons, value_rule
from whetstone_graders import COMPARISONS
from whetstone_graders.allclose import allclose
from whetstone_graders.values import lcb_equal

add_comparisons(COMPARISONS)

_NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 10**8, 10**8 + 1, 2**63, -1, True, False]),
    st.sampled_from(
        [0.0, 1.0, 1 + 1e-9, 1 + 1e-7, 1 + 3e-6, 1e300, float("inf"), float("-inf"), float("nan")]
    ),
    st.sampled_from([1j, 1 + 1e-8j]),
)
_SEQUENCES = st.recursive(
    _NUMBERS | st.sampled_from(["a"]),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@st.composite
def _alike(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two values that are often nearly the same."""
    left = draw(_SEQUENCES)
    return left, draw(st.just(left) | _perturbed(left) | _SEQUENCES)


def _perturbed(value: Any) -> st.SearchStrategy[Any]:
    if isinstance(value, list | tuple):
        items = st.tuples(*map(_perturbed, value))
        return items.map(list) if isinstance(value, list) else items
    if isinstance(value, float):
        return st.sampled_from([value, value + 5e-7, value * (1 + 5e-8), value + 2e-6])
    return st.just(value)


@settings(max_examples=300)
@given(_alike())
@example(([[1.0], [2.0]], [[1.0, 1.0], [2.0, 2.0]]))
@example(([], [[]]))
@example((10**30, 10**30 + 1))
@example(([10**30], [10**30]))
@example(([None], [None]))
@example(([{1}], [{1}]))
def test_allclose_is_numpys(pair: tuple[Any, Any]) -> None:
    numpy = pytest.importorskip("numpy")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = bool(numpy.allclose(*pair, rtol=1e-7, atol=1e-6))
    except (TypeError, ValueError, OverflowError):
        theirs = False
    assert allclose(*pair, relative=1e-7, absolute=1e-6) is theirs


def test_shapes_that_broadcast_to_more_than_fits_in_memory_are_refused_at_once() -> None:
    assert not allclose([[[0.0]]] * 9000, [0.0] * 9000, relative=1e-7, absolute=1e-6)


def _evalplus(atol: float, pairs: list[tuple[Any, Any]]) -> list[bool]:
    """The answer for each value in turn, by the rule as the grader states it."""
    numpy = pytest.importorskip("numpy")
    verdicts: list[bool] = []
    for out, expected in pairs:
        floats = isinstance(expected, float) or (
            isinstance(expected, list | tuple)
            and len(expected) > 0
            and all(isinstance(item, float) for item in expected)
        )
        atol = 1e-6 if atol == 0 and floats else atol
        right = out == expected
        if not right and atol != 0 and type(out) is type(expected):
            try:
                same_length = not isinstance(expected, list | tuple) or len(out) == len(expected)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    right = same_length and bool(numpy.allclose(out, expected, rtol=1e-7, atol=atol))
            except (TypeError, ValueError, OverflowError):
                right = False
        verdicts.append(right)
    return verdicts


@settings(max_examples=200)
@given(st.sampled_from([0.0, 1e-6, 1e-4]), st.lists(_alike(), min_size=1, max_size=4))
@example(0.0, [(10**8 + 1, 10**8), (1.0 + 1e-9, 1.0), (10**8 + 1, 10**8)])
@example(0.0, [(2, 2.0), ((1.0,), [1.0])])
def test_evalplus_tolerance_comes_with_the_first_float_and_stays(
    atol: float, pairs: list[tuple[Any, Any]]
) -> None:
    rule = value_rule(Compare("grader:evalplus", abs=atol))
    assert [rule(out, expected, []) for out, expected in pairs] == _evalplus(atol, pairs)


@pytest.mark.parametrize(
    ("oracle", "value", "expected", "args", "right"),
    [
        ("anything", "whatever", True, [1], True),
        ("zero_too", 0, 6, [1], True),
        ("zero_too", 5, 6, [1], False),
        ("pyramid_surface", 33, 0, [3, 4], False),
        ("pyramid_surface", 35, 33, [3, 4], True),
        ("digit_distance", 1, 7, [1, 12], False),
        ("digit_distance", 2, 7, [1, 12], True),
        ("same_set", (1, 1, 2), [2, 1], [], True),
        ("same_set", [1], [2, 1], [], False),
        ("same_set", 5, [5], [], False),
        ("not_none", "found", True, [], True),
        ("not_none", None, False, [], True),
        ("not_none", False, True, [], False),
        ("not_none", 0, False, [], False),
        ("polynomial_root", -0.5, None, [[1, 2]], True),
        ("polynomial_root", -0.51, None, [[1, 2]], False),
        ("polynomial_root", "x", None, [[1, 2]], False),
    ],
)
def test_evalplus_special_rules(
    oracle: Any, value: object, expected: object, args: list[Any], right: bool
) -> None:
    assert value_rule(Compare("grader:evalplus", abs=1e-4, oracle=oracle))(value, expected, args) is right


@pytest.mark.parametrize(
    ("value", "expected", "right"),
    [
        ((1, 2), [1, 2], True),
        ([(1, 2)], [[1, 2]], False),
        (True, 1, True),
        (1.0, 1, True),
        (1.0000000001, 1.0, False),
        (float("nan"), float("nan"), False),
        ("1", 1, False),
        ({1: 2}, {"1": 2}, False),
    ],
)
def test_lcb_values(value: object, expected: object, right: bool) -> None:
    assert lcb_equal(value, expected, []) is right


_TOGETHER = CallTests(
    [
        CallCase(
            operations=["Calls", "call", "call", "call"],
            args=[[], ["(1, 2)"], ["{3}"], ["0.5"]],
            expected=[None, "(2, 1)", "{3, 4}", "inf"],
        )
    ],
    class_="Calls",
    literals=True,
)
_PROGRAM = """
class Calls:
    def call(self, x):
        return x[::-1] if isinstance(x, tuple) else x | {4} if isinstance(x, set) else RESULT
"""


@pytest.mark.parametrize(("result", "accepted"), [("float('inf')", True), ("1e308", False)])
def test_literals_cross_with_their_types(judge: Judge, result: str, accepted: bool) -> None:
    problem = Problem("literals", "", _TOGETHER, compare=Compare("grader:evalplus"))
    assert judge.judge(problem, Program("python", _PROGRAM.replace("RESULT", result))).accepted is accepted


def test_a_literal_that_is_none_is_a_judge_error(judge: Judge) -> None:
    tests = CallTests([CallCase(expected="1", args=["oops"])], "f", literals=True)
    judged = judge.judge(Problem("broken", "", tests), Program("python", "def f(x): return 1"))
    assert judged.score is None
    assert "the name `oops`" in judged.reason


def test_evalplus_not_none_takes_any_object(judge: Judge) -> None:
    tests = CallTests([CallCase(expected=True, args=["ab"])], "f")
    problem = Problem("match", "", tests, compare=Compare("grader:evalplus", oracle="not_none"))
    found = judge.judge(problem, Program("python", "import re\ndef f(x): return re.match('a', x)"))
    assert found.accepted
    assert not judge.judge(problem, Program("python", "def f(x): return None")).accepted

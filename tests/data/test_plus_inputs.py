"""Inputs of MBPP+ come out of test code with the types that EvalPlus' own reader gives them."""

from __future__ import annotations

from typing import Any

import pytest

from whetstone.data.sources.plus_tests import plus_inputs, plus_tests, with_python_types


@pytest.mark.parametrize(
    ("number", "inputs", "read"),
    [
        (2, [[[1, 2], [3]]], [[(1, 2), (3,)]]),
        (115, [[[[1], [], {"a": 1}, None]]], [[[{1}, {}, {}, {}]]]),
        (124, [["1", "-0-1j"]], [[1.0, complex(-0.0, -1.0)]]),
        (252, [["-3j"], ["1e999-1j"]], [[complex(0.0, -3.0)], [complex(float("inf"), -1.0)]]),
        (3, [[[1, 2], "3"]], [[[1, 2], "3"]]),
    ],
)
def test_types_and_signs_survive(number: int, inputs: list[Any], read: list[Any]) -> None:
    typed = with_python_types(number, inputs)
    assert repr(typed) == repr(read)
    made_of = plus_inputs(plus_tests("f", "def f(*a): return 0", typed, typed, 0.0))
    assert made_of is not None
    assert repr(made_of.base) == repr(made_of.plus) == repr(read)

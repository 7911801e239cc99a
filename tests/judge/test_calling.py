"""Expectations are computed from a reference in the sandbox, with the types that it returns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whetstone.core.problem import Limits
from whetstone.judge.calling import Caller, CallFailed


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with Caller() as caller:
        yield caller


@pytest.mark.process
def test_values_come_in_order_with_their_types(caller: Caller) -> None:
    source = "seen = []\ndef f(x):\n    seen.append(x)\n    return (x, len(seen), {1j})"
    assert caller.call(source, "f", [[1], ["a"], [(2, 3)]]) == [
        (1, 1, {1j}), ("a", 1, {1j}), ((2, 3), 1, {1j})
    ]  # fmt: skip


@pytest.mark.process
def test_results_too_large_for_one_process_are_fetched_one_by_one(caller: Caller) -> None:
    limits = Limits(output_mb=1)
    values = caller.call("def f(n): return 'x' * n", "f", [[600_000]] * 4, limits=limits)
    assert [len(value) for value in values] == [600_000] * 4


@pytest.mark.process
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def f(x): return 1 // x", "input 2 of `f`: raised ZeroDivisionError"),
        ("def f(x): return [lambda: 0][x:] or 1", "input 1 of `f`: unplain"),
        ("import os\ndef f(x): os._exit(x)", "input 1 of `f`"),
        ("def f(x:", "input 1 of `f`"),
        ("def f(x):\n    while not x: pass", "input 2 of `f`: used its CPU time"),
    ],
)
def test_a_reference_that_fails_is_named(caller: Caller, source: str, says: str) -> None:
    with pytest.raises(CallFailed, match=says):
        caller.call(source, "f", [[1], [0]] if "lambda" not in source else [[0]], limits=Limits(cpu_s=0.3))

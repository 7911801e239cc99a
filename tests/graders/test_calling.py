"""Expectations are computed from a reference in the sandbox, with the types that it returns."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.beside import data_beside
from whetstone.core.problem import Limits
from whetstone_graders.calling import Caller, CallFailed

DATA = data_beside(__file__)


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with Caller() as caller:
        yield caller


@pytest.mark.process
def test_values_come_in_order_with_their_types(caller: Caller) -> None:
    source = "seen = []\ndef f(x):\n    seen.append(x)\n    return (x, len(seen), {1j})"
    assert caller.outcomes(source, "f", [[1], ["a"], [(2, 3)]]) == [
        (1, 1, {1j}), ("a", 1, {1j}), ((2, 3), 1, {1j})
    ]  # fmt: skip


@pytest.mark.process
def test_results_too_large_for_one_process_are_fetched_one_by_one(caller: Caller) -> None:
    limits = Limits(output_mb=1)
    values = caller.outcomes("def f(n): return 'x' * n", "f", [[600_000]] * 4, limits=limits)
    assert [len(value) for value in values] == [600_000] * 4


@pytest.mark.process
@pytest.mark.parametrize(
    ("source", "says"),
    DATA["failing_references"],
)
def test_a_reference_that_fails_is_named(caller: Caller, source: str, says: str) -> None:
    inputs = [[1], [0]] if "lambda" not in source else [[0]]
    outcomes = caller.outcomes(source, "f", inputs, limits=Limits(cpu_s=0.3))
    failed = next(each for each in outcomes if isinstance(each, CallFailed))
    assert re.search(says, str(failed))

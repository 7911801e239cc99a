"""Sealed test modules hold no expected value, and observe the same as the tests that they come from."""

from __future__ import annotations

import ast
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.beside import data_beside
from whetstone.core.literal import read_literal
from whetstone.judge.repository.observations import (
    ExpectedObservation,
    ExpectedTest,
    Observation,
    TestRun,
    read_report,
)
from whetstone.judge.repository.run_tests import Observer
from whetstone.judge.repository.sealing import NotSealable, seal_module
from whetstone.judge.values import encode

HEAD = """import datetime, unittest
from decimal import Decimal
import pytest
from pytest import approx
from package import f
"""
CASES = data_beside(__file__)
SEALED, OPEN, APPROXIMATE = CASES["sealed"], CASES["open"], CASES["approximate"]


@pytest.mark.parametrize("form", SEALED)
@pytest.mark.parametrize("secret", ["73195", "'x73195'", "b'73195'", "-73195.5"])
def test_a_sealed_module_does_not_have_the_expected_value(form: str, secret: str) -> None:
    module = seal_module(HEAD + SEALED[form].replace("SECRET", secret))
    assert "73195" not in module.sealed
    assert "73195" in module.recording
    assert "whetstone_observer.value" in module.sealed
    ast.parse(module.sealed)


@pytest.mark.parametrize("form", APPROXIMATE)
def test_an_approximate_comparison_keeps_its_tolerance_outside(form: str) -> None:
    assertion, *tolerance = APPROXIMATE[form]
    module = seal_module(
        f"{HEAD}def test_a():\n    {assertion.replace('SECRET', '73195.25')}\n", first_hole=7
    )
    assert "73195" not in module.sealed
    assert module.tolerances == {7: tuple(tolerance)}


@pytest.mark.parametrize("form", OPEN)
def test_a_value_that_the_code_takes_part_in_stays(form: str) -> None:
    module = seal_module(HEAD + OPEN[form].replace("SECRET", "73195"))
    assert "whetstone_observer.value" not in module.sealed
    assert module.sealed.count("73195") == OPEN[form].count("SECRET")


def test_an_opened_assertion_keeps_the_variable_that_it_reads() -> None:
    source = HEAD + "WANTED = 73195\n\ndef test_a():\n    assert f(1) == WANTED\n    assert f(2) == 4\n"
    module = seal_module(source, opened=[0])
    assert "truth(0, f(1) == WANTED)" in module.sealed
    assert "WANTED = 73195" in module.sealed
    assert "value(1, f(2))" in module.sealed


@pytest.mark.parametrize("source", ["def f(:", "x = '\0'", "(" * 5000, "a = [" + "0, " * 300_000 + "]"])
def test_a_module_that_cannot_be_read_is_refused(source: str) -> None:
    with pytest.raises(NotSealable):
        seal_module(source)


class _Recorded(Observer):
    def __init__(self) -> None:
        self.records: list[list[object]] = []

    def write(self, *record: object) -> None:
        self.records.append(list(record))


def _observed(value: object, expected: object) -> tuple[Observation, ExpectedObservation | None]:
    observer = _Recorded()
    observer.record(3, value, expected)
    [_, _, data], *rest = observer.records
    seen = Observation(3, data if isinstance(data, bytes) else None, encode(expected) if rest else None)  # pyright: ignore
    return seen, ExpectedObservation.recorded(seen, {})


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("[1, 2]", "(1, 2)"),
        ("1", "'1'"),
        ("{1: 2}", "{1: 3}"),
        ("{1, 2}", "{1}"),
        ("'a'", "b'a'"),
        ("None", "0"),
    ],
)
def test_a_value_matches_itself_and_no_other(text: str, other: str) -> None:
    value, wrong = read_literal(text), read_literal(other)
    seen, expected = _observed(value, value)
    assert expected is not None
    assert expected.matches(seen)
    assert not expected.matches(_observed(wrong, wrong)[0])


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ("{'a': 1.1, 2: [3.0]}", "{'a': 1.3, 2: [3.0]}"),
        ("{'a': 1.0, 2: [3.1]}", "{'a': 1.0, 3: [3.0]}"),
        ("{2: [3], 'a': 1}", "{'a': 1.0}"),
    ],
)
def test_a_mapping_has_the_tolerance_of_its_numbers(near: str, far: str) -> None:
    value = read_literal("{'a': 1.0, 2: [3.0]}")
    recorded = _observed(value, value)[1]
    assert recorded is not None
    expected = msgspec.structs.replace(recorded, tolerance=(0.0, 0.2))
    assert expected.matches(_observed(read_literal(near), None)[0])
    assert not expected.matches(_observed(read_literal(far), None)[0])
    assert not expected.matches(_observed([1.0, 3.0], None)[0])


def test_a_value_that_equals_everything_matches_nothing() -> None:
    class Equal:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    seen, expected = _observed(Equal(), 5)
    assert expected is None
    assert not ExpectedObservation(3, truth=True).matches(seen)


def test_a_test_passes_only_with_all_observations_in_every_run() -> None:
    wanted = [ExpectedObservation(0), ExpectedObservation(1, truth=False)]
    test = ExpectedTest("t", wanted)
    right = TestRun("passed", [Observation(0, True), Observation(1, False)])
    assert test.failure([right]) == ""
    for runs in (
        [],
        [TestRun("failed", right.observations)],
        [TestRun("", right.observations)],
        [TestRun("passed", right.observations[:1])],
        [TestRun("passed", [*right.observations, Observation(2, True)])],
        [TestRun("passed", right.observations[::-1])],
        [TestRun("passed", [Observation(0, True), Observation(1, True)])],
        [right, TestRun("failed", right.observations)],
    ):
        assert test.failure(runs)


def test_only_values_that_the_base_does_not_give_seal_a_test() -> None:
    telling = _observed("four", "four")[1]
    assert telling is not None
    plain = ExpectedTest("t", [ExpectedObservation(0), telling])
    test = ExpectedTest("t", [ExpectedObservation(0), msgspec.structs.replace(telling, is_telling=True)])
    gives = TestRun("failed", [Observation(0, True), _observed("four", "four")[0]])
    assert test.is_sealed([])
    assert not plain.is_sealed([])
    assert not test.is_sealed([gives])


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_any_report_can_be_read(noise: bytes, seed: int) -> None:
    observer = _Recorded()
    observer.write("test", "t")
    observer.value(0, [1, {2: "x"}])
    observer.truth(1, True)
    observer.write("end", "t", "passed")
    observer.write("done")
    data = b"".join(len(part).to_bytes(4, "little") + part for part in map(encode, observer.records))
    whole = read_report(data)
    assert whole.complete
    assert whole.runs["t"][0].outcome == "passed"
    cut = Random(seed).randrange(len(data) + 1)
    report = read_report(data[:cut] + noise + data[cut:])
    for runs in report.runs.values():
        ExpectedTest("t", [ExpectedObservation(0, "")]).failure(runs)

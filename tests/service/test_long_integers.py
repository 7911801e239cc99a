"""Requests may contain integers of more digits than Python converts by default, within a bound."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from whetstone.core.http.refusal import RequestRefused
from whetstone.core.long_integers import MOST_DIGITS, format_integer, is_short, parse_integer, read_json
from whetstone.core.problem import CallTests, Problem
from whetstone.service.compat.schemas import TestConfig
from whetstone.service.compat.tables import Table, build_problem
from whetstone.service.messages import read_json as read_request

DIGITS = "1" + "0" * 4999 + "7"
NUMBER = 10**5000 + 7


class Request(msgspec.Struct):
    value: Any
    name: str = ""


@pytest.mark.parametrize("text", [DIGITS, f"[{DIGITS}]", f'{{"a": [-{DIGITS}]}}'])
def test_long_integers_in_a_request_are_read(text: str) -> None:
    found = read_request(f'{{"value": {text}}}'.encode(), Request, "the body").value
    assert found in (NUMBER, [NUMBER], {"a": [-NUMBER]})


def test_a_problem_in_a_request_has_long_integers() -> None:
    cases = f'{{"kind": "call", "function": "f", "cases": [{{"args": [{DIGITS}], "expected": -{DIGITS}}}]}}'
    body = f'{{"id": "p", "statement": "", "tests": {cases}}}'.encode()
    tests = read_request(body, Problem, "the body").tests
    assert isinstance(tests, CallTests)
    assert tests.cases[0].args == [NUMBER]
    table = Table([DIGITS], [f"[{DIGITS}]"], fn_name="f", json_input=True)
    tests = build_problem(TestConfig(), table, "", "p").tests
    assert isinstance(tests, CallTests)
    assert tests.cases[0].expected == [NUMBER]


@pytest.mark.parametrize(
    "body",
    [
        f'{{"value": {"7" * (MOST_DIGITS + 1)}}}',
        '{"value": 1, "name": 5}',
        f'{{"name": {DIGITS}, "value": 1}}',
        "{",
    ],
)
def test_other_bodies_are_refused_with_their_field(body: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_request(body.encode(), Request, "the body")
    assert "the body" in str(refused.value)


@pytest.mark.parametrize("digits", [1, 3000, 3999, 4000, 4001, 4300, 4301, 8000, 12_345, 50_000])
def test_long_integers_are_converted_exactly(digits: int) -> None:
    for text in ("9" * digits, "1" + "0" * (digits - 1), "-" + "7" * digits):
        number = parse_integer(text)
        assert format_integer(number) == text
        assert read_json(text) == number
        assert is_short(number) == (digits <= 3600)
    assert number == -7 * (10**digits - 1) // 9


@pytest.mark.cost
def test_the_cost_of_an_integer_is_bounded() -> None:
    def seconds(digits: int) -> float:
        began = time.thread_time()
        for _ in range(10):
            parse_integer("7" * digits)
        return time.thread_time() - began

    assert min(seconds(80_000) / seconds(40_000) for _ in range(7)) < 3.9
    with pytest.raises(ValueError, match="more than 100,000 digits"):
        parse_integer("7" * (MOST_DIGITS + 1))
    with pytest.raises(ValueError, match="more than 100,000 digits"):
        format_integer(10 ** (MOST_DIGITS + 10))

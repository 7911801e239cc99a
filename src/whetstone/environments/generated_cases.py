"""Parses test cases that a model wrote in its reply. The result is bounded in size, or an error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, cast

from whetstone.core.literal import write_literal
from whetstone.core.problem import CallCase, CallTests, Problem, StdinCase, StdinTests
from whetstone.environments.examples import contains_example
from whetstone.judge.extract import strip_thinking

MOST_DEPTH = 32
# An object with cases begins with the name of its first field.
_BEGINS_OBJECT = re.compile(r'\{[ \t\n\r]*+"')
# The most characters to parse as JSON, per character of the reply. Nested braces would otherwise make parsing
# quadratic.
_READ_PER_CHARACTER = 8
# An object is parsed in the first so many characters, and in four times as many while it may go on. The
# parser counts the lines before an error, so it must not get the whole reply each time.
_FIRST_READ, _READ_FACTOR = 128, 4
# The most characters of an incomplete constant or escape at the end of what is parsed.
_LONGEST_PIECE = 12
# The possible errors of a reply. Only AstraFlow's rules use `lines`.
CASE_ERRORS = ("form", "count", "size", "repeated", "shown", "lines")


class InvalidCases(Exception):
    """A reply without valid cases. The message is one of ``CASE_ERRORS``."""


GeneratedTests = StdinTests | CallTests


def can_generate(problem: Problem) -> bool:
    """Return whether cases for the problem can be written as data: input and output text, or calls of one
    function."""
    tests = problem.tests
    return isinstance(tests, StdinTests) or (isinstance(tests, CallTests) and tests.function is not None)


def case_format(problem: Problem) -> str:
    """Return the JSON form in which the cases must be written."""
    if isinstance(problem.tests, StdinTests):
        return '{"inputs": ["the first input", …], "outputs": ["what is printed for it", …]}'
    return '{"inputs": [[the arguments of the first call], …], "outputs": [what it returns, …]}'


def read_cases(text: str, problem: Problem, *, count: int, most_bytes: int) -> GeneratedTests:
    """Return the ``count`` cases of a reply, from its last JSON object with cases.

    The object has ``inputs`` and ``outputs``, or ``cases`` with an ``input`` and an ``output`` each. Raises
    InvalidCases for a reply without such an object, and for another number of cases. A repeated or empty
    input, a case that the statement shows, and more than ``most_bytes`` bytes in total are invalid as well.
    """
    answer = strip_thinking(text)
    pairs = [] if answer is None else _case_pairs(answer)
    if not pairs:
        raise InvalidCases("form")
    if len(pairs) != count:
        raise InvalidCases("count")
    if any(nesting_depth(value) > MOST_DEPTH for pair in pairs for value in pair):
        raise InvalidCases("size")
    try:
        written = [json.dumps(pair, ensure_ascii=False).encode() for pair in pairs]
    except UnicodeEncodeError:
        raise InvalidCases("form") from None
    if sum(map(len, written)) > most_bytes:
        raise InvalidCases("size")
    if len({_input_key(case_input) for case_input, _ in pairs}) < len(pairs):
        raise InvalidCases("repeated")
    if any(contains_example(problem.statement, case_input, expected) for case_input, expected in pairs):
        raise InvalidCases("shown")
    return _stdin(pairs) if isinstance(problem.tests, StdinTests) else _calls(pairs, problem)


def as_text(tests: GeneratedTests) -> list[tuple[str, str]]:
    """Return input and output of each case as text."""
    if isinstance(tests, StdinTests):
        return [(case.input, case.output) for case in tests.cases]
    return [(json.dumps(case.args), json.dumps(case.expected)) for case in tests.cases]


def _case_pairs(text: str) -> list[tuple[Any, Any]]:
    """Return input and output of each case of the last object with cases. The time is linear."""
    decoder = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_finite)
    found: list[tuple[Any, Any]] = []
    left = _READ_PER_CHARACTER * len(text)
    begin = _BEGINS_OBJECT.search(text)
    while begin is not None and left > 0:
        value, end, read = _object_at(decoder, text, begin.start())
        left -= read
        if value is not None:
            found = _pairs_of_object(value) or found
        begin = _BEGINS_OBJECT.search(text, end)
    return found


def _object_at(decoder: json.JSONDecoder, text: str, place: int) -> tuple[dict[str, Any] | None, int, int]:
    """Return the object at a place or None, where to search on, and the cost in characters."""
    read, size = 0, _FIRST_READ
    while True:
        part = text[place : place + size]
        read += len(part)
        may_go_on = False
        try:
            value, end = decoder.raw_decode(part)
        except json.JSONDecodeError as error:
            at_end = error.msg.startswith("Unterminated") or error.pos > len(part) - _LONGEST_PIECE
            may_go_on = at_end and place + size < len(text)
        except (ValueError, RecursionError):  # a number is too long, or the nesting too deep
            pass
        else:
            return value, place + end, end
        if not may_go_on:
            return None, place + 1, read
        size *= _READ_FACTOR


def _pairs_of_object(value: Any) -> list[tuple[Any, Any]]:
    inputs, outputs, cases = (value.get(name) for name in ("inputs", "outputs", "cases"))
    if isinstance(inputs, list) and isinstance(outputs, list):
        several = cast("list[Any]", inputs), cast("list[Any]", outputs)
        return list(zip(*several, strict=True)) if len(several[0]) == len(several[1]) else []
    listed = cast("list[Any]", cases) if isinstance(cases, list) else []
    if any(not isinstance(case, dict) or not {"input", "output"} <= case.keys() for case in listed):
        return []
    return [(case["input"], case["output"]) for case in listed]


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large")
    return value


def nesting_depth(value: Any) -> int:
    """Return the nesting depth of lists and mappings, at most one more than is allowed. It does not recurse,
    because the value comes from a model."""
    depth, level = 0, [value]
    while level and depth <= MOST_DEPTH:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += cast("dict[str, Any]", item).values()
            elif isinstance(item, list):
                inner += cast("list[Any]", item)
        depth, level = depth + bool(inner), inner
    return depth


def _input_key(case_input: Any) -> str:
    return (
        " ".join(case_input.split())
        if isinstance(case_input, str)
        else json.dumps(case_input, sort_keys=True)
    )


def _stdin(pairs: Sequence[tuple[Any, Any]]) -> StdinTests:
    for case_input, expected in pairs:
        if not isinstance(case_input, str) or not isinstance(expected, str) or not case_input.strip():
            raise InvalidCases("form")
    return StdinTests([StdinCase(case_input, expected) for case_input, expected in pairs])


def _calls(pairs: Sequence[tuple[Any, Any]], problem: Problem) -> CallTests:
    tests = problem.tests
    assert isinstance(tests, CallTests)
    cases: list[CallCase] = []
    for case_input, expected in pairs:
        if not isinstance(case_input, list) or not case_input:
            raise InvalidCases("form")
        arguments = cast("list[Any]", case_input)
        if tests.literals:
            cases.append(CallCase(write_literal(expected), [write_literal(each) for each in arguments]))
        else:
            cases.append(CallCase(expected, arguments))
    return CallTests(cases, tests.function, tests.class_, tests.literals)

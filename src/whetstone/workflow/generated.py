"""Test cases that a model wrote, read out of its reply. Whatever it wrote: bounded data, or none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from whetstone.judge.extract import strip_thinking
from whetstone.literal import write_literal
from whetstone.problem import CallCase, CallTests, Problem, StdinCase, StdinTests
from whetstone.workflow.examples import is_shown

MOST_DEPTH = 32
_READ_PER_CHARACTER = 4
"""How often a reply, at most, is read as JSON all in all: nested braces would have it read once each."""
_READ_WHEN_TOO_DEEP = 4000
"""What an object costs that is nested too deeply to be read, in characters."""
FAULTS = ("form", "count", "size", "repeated", "shown", "lines")
"""What may be wrong with a reply; ``lines`` is a rule of AstraFlow's."""


class NoCases(Exception):
    """A reply without the cases that were asked for. The message says in a word what is wrong."""


Generated = StdinTests | CallTests


def can_generate(problem: Problem) -> bool:
    """Whether cases for the problem can be written as data: text in and out, or calls of one function."""
    tests = problem.tests
    return isinstance(tests, StdinTests) or (isinstance(tests, CallTests) and tests.function is not None)


def form_of(problem: Problem) -> str:
    """How the cases are to be written."""
    if isinstance(problem.tests, StdinTests):
        return '{"inputs": ["the first input", …], "outputs": ["what is printed for it", …]}'
    return '{"inputs": [[the arguments of the first call], …], "outputs": [what it returns, …]}'


def read_cases(text: str, problem: Problem, *, count: int, most_bytes: int) -> Generated:
    """The ``count`` cases of a reply, in the last JSON object of it that holds cases.

    Taken are ``inputs`` and ``outputs``, or ``cases`` with an ``input`` and an ``output`` each. Raises
    NoCases for a reply without such an object, for another number of cases, for one whose input comes twice
    or is empty, for one that the statement shows, and for more than ``most_bytes`` bytes in all.
    """
    answer = strip_thinking(text)
    pairs = [] if answer is None else _pairs(answer)
    if not pairs:
        raise NoCases("form")
    if len(pairs) != count:
        raise NoCases("count")
    if any(_depth(value) > MOST_DEPTH for pair in pairs for value in pair):
        raise NoCases("size")
    try:
        written = [json.dumps(pair, ensure_ascii=False).encode() for pair in pairs]
    except UnicodeEncodeError:
        raise NoCases("form") from None
    if sum(map(len, written)) > most_bytes:
        raise NoCases("size")
    if len({_same(given) for given, _ in pairs}) < len(pairs):
        raise NoCases("repeated")
    if any(is_shown(problem.statement, given, expected) for given, expected in pairs):
        raise NoCases("shown")
    return _stdin(pairs) if isinstance(problem.tests, StdinTests) else _calls(pairs, problem)


def as_text(tests: Generated) -> list[tuple[str, str]]:
    """Input and output of each case, to be read."""
    if isinstance(tests, StdinTests):
        return [(case.input, case.output) for case in tests.cases]
    return [(json.dumps(case.args), json.dumps(case.expected)) for case in tests.cases]


def _pairs(text: str) -> list[tuple[Any, Any]]:
    """Input and output of each case of the last object that holds some."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    found: list[tuple[Any, Any]] = []
    left = _READ_PER_CHARACTER * len(text)
    place = text.find("{")
    while place >= 0 and left > 0:
        try:
            value, end = decoder.raw_decode(text, place)
            left -= end - place
        except json.JSONDecodeError as error:
            end, left = place + 1, left - max(error.pos - place, 1)
        except (ValueError, RecursionError):
            end, left = place + 1, left - min(len(text) - place, _READ_WHEN_TOO_DEEP)
        else:
            found = _of_object(value) or found
        place = text.find("{", end)
    return found


def _of_object(value: Any) -> list[tuple[Any, Any]]:
    inputs, outputs, cases = (value.get(name) for name in ("inputs", "outputs", "cases"))
    if isinstance(inputs, list) and isinstance(outputs, list):
        several = cast("list[Any]", inputs), cast("list[Any]", outputs)
        return list(zip(*several, strict=True)) if len(several[0]) == len(several[1]) else []
    listed = cast("list[Any]", cases) if isinstance(cases, list) else []
    if any(not isinstance(case, dict) or not {"input", "output"} <= case.keys() for case in listed):
        return []
    return [(case["input"], case["output"]) for case in listed]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(value: Any) -> int:
    """How deep lists and mappings are nested, without recursion: up to one more than is allowed."""
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


def _same(given: Any) -> str:
    return " ".join(given.split()) if isinstance(given, str) else json.dumps(given, sort_keys=True)


def _stdin(pairs: Sequence[tuple[Any, Any]]) -> StdinTests:
    for given, expected in pairs:
        if not isinstance(given, str) or not isinstance(expected, str) or not given.strip():
            raise NoCases("form")
    return StdinTests([StdinCase(given, expected) for given, expected in pairs])


def _calls(pairs: Sequence[tuple[Any, Any]], problem: Problem) -> CallTests:
    tests = problem.tests
    assert isinstance(tests, CallTests)
    cases: list[CallCase] = []
    for given, expected in pairs:
        if not isinstance(given, list) or not given:
            raise NoCases("form")
        arguments = cast("list[Any]", given)
        if tests.literals:
            cases.append(CallCase(write_literal(expected), [write_literal(each) for each in arguments]))
        else:
            cases.append(CallCase(expected, arguments))
    return CallTests(cases, tests.function, tests.class_, tests.literals)

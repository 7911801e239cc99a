"""Parses test cases that a model wrote in its reply, and detects those that copy an example of the statement.

The result is bounded in size, or an error.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, cast

import msgspec

from whetstone.core.literal import write_literal
from whetstone.core.problem import CallCase, CallTests, Problem, StdinCase, StdinTests
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
    inputs = [given for given, _ in pairs]
    keys = [" ".join(i.split()) if isinstance(i, str) else json.dumps(i, sort_keys=True) for i in inputs]
    if len(set(keys)) < len(keys):
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
    try:
        return msgspec.structs.replace(tests, cases=cases)
    # An argument is no linked list or tree where the tests have one.
    except ValueError:
        raise InvalidCases("form") from None


_EXAMPLE = re.compile(r"^\W*(?:examples?|samples?|sample (?:input|output|test|case)s?|for example)\b", re.I)
_OTHER_HEADING = re.compile(
    r"^\W*(?:notes?|constraints?|limits?|hints?|input|output|follow[- ]?up|your task)\b", re.I
)
_EXAMPLE_MARKER = re.compile(r"example|sample|input|>>>|->|=>|returns?\b|=", re.I)
# In characters: an output of an example follows its input within a few lines.
_WINDOW = 400
_LONG = 64


def without_examples(statement: str) -> str:
    """Return a statement without its example sections, as far as headings identify them.

    A section begins with a line such as "Example" or "Sample input", and ends at the next heading of another
    kind. A statement that consists of examples only is returned unchanged.
    """
    kept: list[str] = []
    inside = False
    for line in statement.splitlines():
        if _EXAMPLE.match(line):
            inside = True
        elif inside and _ends_examples(line):
            inside = False
        if not inside:
            kept.append(line)
    text = "\n".join(kept).strip()
    return text or statement


def _ends_examples(line: str) -> bool:
    """Return whether a line begins a section without examples: ``Note:``, ``**Constraints**``, ``## Input``.

    ``Input: 3`` and a bare ``Input`` belong to examples.
    """
    found = _OTHER_HEADING.match(line)
    if found is None:
        return False
    word = re.sub(r"\W", "", found[0]).lower()
    marked = line.lstrip().startswith(("#", "*", "-----"))
    return marked if word in ("input", "output") else True


def contains_example(statement: str, input_value: Any, expected: Any) -> bool:
    """Return whether the statement shows a case: its input, followed by its output within a few lines.

    The comparison ignores spaces and quotes. Two numbers in a statement are not yet an example: a word such
    as "example" or an arrow has to precede the input. A model may have written the case, so the time does not
    depend on how often the statement has its texts.
    """
    text = _normalize(statement)
    inputs = [place for form in _written_forms(input_value) for place in _places(text, form)]
    answers = [place for form in _written_forms(expected) for place in _places(text, form)]
    if not inputs or not answers:
        return False
    markers = [(found.start(), found.end()) for found in _EXAMPLE_MARKER.finditer(text)]
    marked = _first_ends(markers)
    answered = _first_ends(answers)
    return any(marked(start - _WINDOW) <= start and answered(end) <= end + _WINDOW for start, end in inputs)


def _places(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each place where a text has a form; of a short one, not as a part of a word."""
    is_long = len(form) > _LONG
    start = text.find(form) if form else -1
    while start >= 0:
        end = start + len(form)
        if is_long or not (_is_word(text[start - 1 : start]) or _is_word(text[end : end + 1])):
            yield start, end
        # Places of a long form that overlap would make this quadratic.
        start = text.find(form, end if is_long else start + 1)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _first_ends(places: list[tuple[int, int]]) -> Callable[[int], float]:
    """Return a function of a position: the first end of the places that begin there or later."""
    places = sorted(places)
    begins = [begin for begin, _ in places]
    ends = [*accumulate((end for _, end in reversed(places)), min, initial=math.inf)][::-1]
    return lambda position: ends[bisect_left(begins, position)]


def _normalize(text: str) -> str:
    return re.sub(r"[ \t\"'`]+|\n+", lambda gap: " " if "\n" in gap[0] else "", text)


def _written_forms(value: Any) -> list[str]:
    """Return the forms in which a statement may write a value."""
    if isinstance(value, str):
        return [_normalize(value.strip())]
    plain = _normalize(json.dumps(value, ensure_ascii=False))
    inner = plain[1:-1] if isinstance(value, list) else plain
    return [plain, inner]

"""Removes the examples from a statement, and detects cases that copy an example."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

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

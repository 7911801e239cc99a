"""Removes the examples from a statement, and detects cases that copy an example."""

from __future__ import annotations

import json
import re
from typing import Any

_EXAMPLE = re.compile(r"^\W*(?:examples?|samples?|sample (?:input|output|test|case)s?|for example)\b", re.I)
_OTHER_HEADING = re.compile(
    r"^\W*(?:notes?|constraints?|limits?|hints?|input|output|follow[- ]?up|your task)\b", re.I
)
_EXAMPLE_MARKER = re.compile(r"example|sample|input|>>>|->|=>|returns?\b|=", re.I)
# In characters: an output of an example follows its input within a few lines.
_WINDOW = 400


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
    as "example" or an arrow has to precede the input.
    """
    text = _normalize(statement)
    inputs = [form for form in _written_forms(input_value) if form]
    answers = [form for form in _written_forms(expected) if form]
    for form in inputs:
        for found in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", text):
            before = text[max(0, found.start() - _WINDOW) : found.start()]
            after = text[found.end() : found.end() + _WINDOW]
            if _EXAMPLE_MARKER.search(before) and any(
                re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", after) for answer in answers
            ):
                return True
    return False


def _normalize(text: str) -> str:
    return re.sub(r"[ \t\"'`]+|\n+", lambda gap: " " if "\n" in gap[0] else "", text)


def _written_forms(value: Any) -> list[str]:
    """Return the forms in which a statement may write a value."""
    if isinstance(value, str):
        return [_normalize(value.strip())]
    plain = _normalize(json.dumps(value, ensure_ascii=False))
    inner = plain[1:-1] if isinstance(value, list) else plain
    return [plain, inner]

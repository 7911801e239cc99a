"""The examples of a statement: taking them out, and knowing a case that copies one."""

from __future__ import annotations

import json
import re
from typing import Any

_EXAMPLE = re.compile(r"^\W*(?:examples?|samples?|sample (?:input|output|test|case)s?|for example)\b", re.I)
_OTHER = re.compile(
    r"^\W*(?:notes?|constraints?|limits?|hints?|input|output|follow[- ]?up|your task)\b", re.I
)
_SIGN = re.compile(r"example|sample|input|>>>|->|=>|returns?\b|=", re.I)
_WINDOW = 400


def without_examples(statement: str) -> str:
    """A statement without its sections of examples, as far as their headings show them.

    From a line that begins with "Example", "Sample input" and the like, up to the next heading of another
    kind. A statement of nothing else stays whole.
    """
    kept: list[str] = []
    inside = False
    for line in statement.splitlines():
        if _EXAMPLE.match(line):
            inside = True
        elif inside and _heading(line):
            inside = False
        if not inside:
            kept.append(line)
    text = "\n".join(kept).strip()
    return text or statement


def _heading(line: str) -> bool:
    """Whether a line begins a section that is not of examples: ``Note:``, ``**Constraints**``, ``## Input``.

    ``Input: 3`` and a bare ``Input`` stand within examples.
    """
    found = _OTHER.match(line)
    if found is None:
        return False
    word = re.sub(r"\W", "", found[0]).lower()
    marked = line.lstrip().startswith(("#", "*", "-----"))
    return marked if word in ("input", "output") else True


def is_shown(statement: str, given: Any, expected: Any) -> bool:
    """Whether the statement shows a case: its input, and its output within a few lines after it.

    What is compared is written without spaces and quotes. A statement that names two numbers is not an
    example: some sign of one has to stand before the input.
    """
    text = _bare(statement)
    wanted = [form for form in _forms(given) if form]
    answers = [form for form in _forms(expected) if form]
    for form in wanted:
        for found in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", text):
            before = text[max(0, found.start() - _WINDOW) : found.start()]
            after = text[found.end() : found.end() + _WINDOW]
            if _SIGN.search(before) and any(
                re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", after) for answer in answers
            ):
                return True
    return False


def _bare(text: str) -> str:
    return re.sub(r"[ \t\"'`]+|\n+", lambda gap: " " if "\n" in gap[0] else "", text)


def _forms(value: Any) -> list[str]:
    """How a value may stand in a statement."""
    if isinstance(value, str):
        return [_bare(value.strip())]
    plain = _bare(json.dumps(value, ensure_ascii=False))
    inner = plain[1:-1] if isinstance(value, list) else plain
    return [plain, inner]

"""Plain text in columns, for commands that start faster than a table library can be imported."""

from __future__ import annotations

import textwrap

_MIN_TEXT_WIDTH = 20


def hanging_lines(start: str, text: str, width: int) -> list[str]:
    """Return ``start`` followed by ``text``, wrapped to ``width`` characters. Later lines are indented to the
    text."""
    # Not at hyphens: a line may contain a command to copy.
    lines = textwrap.wrap(text, max(width - len(start), _MIN_TEXT_WIDTH), break_on_hyphens=False)
    indent = " " * len(start)
    return [f"{start}{lines[0]}", *(f"{indent}{line}" for line in lines[1:])] if lines else [start.rstrip()]

"""Plain text in columns, for commands that start faster than a library for tables is imported."""

from __future__ import annotations

import textwrap

_NARROWEST = 20


def hanging(start: str, text: str, width: int) -> list[str]:
    """``start`` with ``text`` beside it, wrapped to lines of at most ``width`` characters."""
    # Not at hyphens: a line may hold a command to copy.
    lines = textwrap.wrap(text, max(width - len(start), _NARROWEST), break_on_hyphens=False)
    indent = " " * len(start)
    return [f"{start}{lines[0]}", *(f"{indent}{line}" for line in lines[1:])] if lines else [start.rstrip()]

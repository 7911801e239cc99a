"""Parses the parts of a reply as Python, each part once, at a cost in proportion to the length of the reply.

A model chooses its replies, and a reply that stalls the extraction stalls training. So a budget of characters
pays for everything that is parsed. Text beyond the budget counts as text that is not Python.
"""

from __future__ import annotations

import ast

from whetstone.core.syntax import NotPython, parse
from whetstone.judge.kinds.assert_names import free_names

# The budget that a reply has in addition to its own length, in characters.
_FREE_CHARACTERS = 40_000
# The cost of a text without characters.
_COST_PER_TEXT = 100


class ReplyParser:
    """The parser of one reply.

    length: number of characters of the reply. For 0, nothing is parsed, and no text counts as Python.
    """

    def __init__(self, length: int) -> None:
        self._budget = _FREE_CHARACTERS + length if length else 0
        self._trees: dict[str, ast.Module | NotPython] = {}

    @property
    def can_parse(self) -> bool:
        """Whether some of the budget is left."""
        return self._budget > 0

    def spend(self, characters: int) -> None:
        """Pay for work that is not parsing."""
        self._budget -= characters

    def tree(self, code: str) -> ast.Module | None:
        """Return the syntax tree, or None for text that is not Python."""
        parsed = self._parse(code)
        return None if isinstance(parsed, NotPython) else parsed

    def is_python(self, code: str) -> bool:
        """Return whether a text is Python; an empty text is."""
        return self.can_parse and (not code or self.tree(code) is not None)

    def error_line(self, code: str) -> int | None:
        """Return the number of the first line that is not Python, from 1; None if it is not known."""
        parsed = self._parse(code)
        return parsed.line if isinstance(parsed, NotPython) else None

    def free_names(self, code: str) -> frozenset[str]:
        """Return the names that a text reads without binding them; none for text that is not Python."""
        if self.tree(code) is None or not self._pay(len(code)):
            return frozenset()
        try:
            return frozenset(free_names(code))
        except NotPython:
            return frozenset()

    def _parse(self, code: str) -> ast.Module | NotPython:
        if code not in self._trees:
            self._trees[code] = self._parse_new(code)
        return self._trees[code]

    def _parse_new(self, code: str) -> ast.Module | NotPython:
        if not self._pay(len(code)):
            return NotPython("the reply has too much text to parse")
        try:
            return parse(code)
        except NotPython as error:
            return error

    def _pay(self, characters: int) -> bool:
        """Pay for the parsing of a text. Return whether the budget was sufficient."""
        if self._budget <= 0:
            return False
        self._budget -= characters + _COST_PER_TEXT
        return self._budget >= 0

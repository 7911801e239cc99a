"""A reply as text in which every mark of its family is one character, from tokens or from text.

Where a mark is a token, only that token is a mark: the same text in other tokens is text of the model. The
characters are those that Unicode keeps for internal use, which no text may have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from whetstone.environments.formats.family import END_THINK, THINK, Family
from whetstone.environments.prompt import Tokenizer

_FIRST = 0xFDD0
MARK = "[\ufdd0-\ufdef]"
"""A pattern of the character of any mark."""
_MARK = re.compile(MARK)


class MarkedText(Struct, frozen=True):
    """A text with marks as characters. ``counts`` has the number of tokens up to the end of a mark by the
    place behind it, for marks that are tokens."""

    text: str
    counts: dict[int, int] = {}


class Marks:
    """The marks of a family, for one tokenizer; None for replies that come as text."""

    def __init__(self, family: Family, tokenizer: Tokenizer | None = None) -> None:
        added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
        special = {token.content for token in added.values() if token.special}
        self.family = family
        self.finds_thinking = family.thinking != (THINK, END_THINK) or bool(special & {THINK, END_THINK})
        """Whether the marks of thinking are found here; otherwise they stay text."""
        calls, channels = family.calls, family.channels
        literals = [*(family.thinking if self.finds_thinking and channels is None else ()), *family.drop]
        literals += calls.marks() if calls else []
        literals += [channels.start, channels.channel, channels.message, *channels.ends] if channels else []
        self._literals = list(dict.fromkeys(literals))
        self._dropped = "".join(map(self.char, family.drop))
        ids = {token.content: id_ for id_, token in added.items()}
        self._tokens = {ids[each]: self.char(each) for each in self._literals if each in ids}
        texts = [each for each in self._literals if each not in ids]
        self._texts = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._skipped = {*(id_ for id_, token in added.items() if token.special)}
        self._skipped |= {*getattr(tokenizer, "all_special_ids", ())}
        ends = [*family.ends, *(channels.ends if channels else ())]
        self.end_tokens = frozenset(ids[end] for end in ends if end in ids)
        """The tokens that end a reply."""
        self.stray_tokens = frozenset(self._skipped - self._tokens.keys())
        """The special tokens that have no meaning within a reply."""
        self._tokenizer = tokenizer

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._literals)

    def char(self, literal: str) -> str:
        """Return the character of a mark; empty for an empty text."""
        return chr(_FIRST + self._literals.index(literal)) if literal else ""

    def plain(self, text: str) -> str:
        """Return a text with its marks as the model writes them, without those that mean nothing."""
        return _MARK.sub(self._literal, text)

    def _literal(self, mark: re.Match[str]) -> str:
        number = ord(mark[0]) - _FIRST
        return "" if mark[0] in self._dropped or number >= len(self._literals) else self._literals[number]

    def of_text(self, text: str) -> MarkedText:
        """Return a text with its marks as characters."""
        text = _MARK.sub("\ufffd", text)
        every = re.compile("|".join(map(re.escape, self._literals)))
        return MarkedText(every.sub(lambda found: self.char(found[0]), text))

    def of_tokens(self, ids: Sequence[int]) -> MarkedText:
        """Return a reply of tokens up to a token that ends replies, without other special tokens."""
        parts: list[str] = []
        counts: dict[int, int] = {}
        run: list[int] = []
        before: int | None = None
        length = 0
        for count, token in enumerate(ids, 1):
            if (mark := self._tokens.get(token)) is not None:
                parts += [self._decoded(run, before), mark]
                length += len(parts[-2]) + 1
                counts[length] = count
                run, before = [], token
            elif token in self.end_tokens:
                break
            elif token not in self._skipped:
                run.append(token)
        return MarkedText("".join([*parts, self._decoded(run, before)]), counts)

    def _decoded(self, run: list[int], before: int | None) -> str:
        """Return the text of tokens without marks, behind the token ``before``."""
        if not run or self._tokenizer is None:
            return ""
        if before is None:
            text = self._tokenizer.decode(run, skip_special_tokens=False)
        else:
            # Some tokenizers drop a space at the beginning of a text, so the mark stands before it.
            literal = self._tokenizer.decode([before], skip_special_tokens=False)
            text = self._tokenizer.decode([before, *run], skip_special_tokens=False).removeprefix(literal)
        text = _MARK.sub("\ufffd", text)
        return text if self._texts is None else self._texts.sub(lambda found: self.char(found[0]), text)

"""Decides when a reply ends: at an end-of-sequence token, a stop string, or its length."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from whetstone.core.sample import FinishReason
from whetstone.core.settings import Sampling

# What a tokenizer decodes bytes to that are no whole character.
_INCOMPLETE = "\ufffd"


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return every token id that ends a reply, from the generation config and the tokenizer."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in (*ids, getattr(tokenizer, "eos_token_id", None)) if i is not None)


@lru_cache(maxsize=32)
def stop_strings(tokenizer: Any, strings: tuple[str, ...]) -> StopStrings:
    """Return the finder of these strings, which replies share: it learns what each token can complete."""
    return StopStrings(tokenizer, strings)


class StopStrings:
    """Finds stop strings at the end of replies.

    Decoding costs far more than all else that the host does for a token. So a reply is decoded only after a
    token that can complete a stop string: its text has the last character of one, or bytes of a character
    that may be.
    """

    def __init__(self, tokenizer: Any, strings: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._strings = strings
        # A token has at least one byte. The extra tokens are for a character whose bytes began before
        # the string, and for a token without text.
        self.reach = max(len(s.encode()) for s in strings) + 4 if strings else 0
        self._completing: dict[int, bool] = {}

    def end(self, token_ids: list[int]) -> bool:
        """Return whether one of the strings is within the last tokens of a reply. Call it for every token."""
        if not self._strings or not self._can_complete(token_ids[-1]):
            return False
        text = self._decode(token_ids[-self.reach :])
        return any(string in text for string in self._strings)

    def _can_complete(self, newest: int) -> bool:
        if newest not in self._completing:
            # Some tokenizers drop a space at the beginning of a text, so the token stands behind itself.
            text = self._decode([newest, newest])
            last = {string[-1] for string in self._strings}
            self._completing[newest] = not text or any(c in last or c == _INCOMPLETE for c in text)
        return self._completing[newest]

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(
            token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )


class StopRule:
    """Decides, after each token of a reply, whether it has ended and why."""

    def __init__(self, tokenizer: Any, ends: frozenset[int], params: Sampling) -> None:
        self._strings = stop_strings(tokenizer, tuple(params.stop))
        self._ends = ends
        self._params = params

    @property
    def reach(self) -> int:
        """The most tokens in which a started stop string can end; 0 without stop strings."""
        return self._strings.reach

    def check(self, token_ids: list[int]) -> FinishReason | None:
        """Return why a reply of these tokens has ended, or None. Call it for every token."""
        if token_ids[-1] in self._ends or self._strings.end(token_ids):
            return "stop"
        return "length" if len(token_ids) >= self._params.max_tokens else None

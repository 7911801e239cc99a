"""Decides when a reply ends: at an end-of-sequence token, a stop string, or its length."""

from __future__ import annotations

from typing import Any

from whetstone.core.sample import FinishReason
from whetstone.core.settings import Sampling


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return every token id that ends a reply, from the generation config and the tokenizer."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in (*ids, getattr(tokenizer, "eos_token_id", None)) if i is not None)


class StopRule:
    """Decides, after each token of a reply, whether it has ended and why."""

    def __init__(self, tokenizer: Any, ends: frozenset[int], params: Sampling) -> None:
        self._tokenizer = tokenizer
        self._ends = ends
        self._params = params
        # A token has at least one byte. The extra tokens are for a character whose bytes began before
        # the string, and for a token without text.
        self._tail = max((len(s.encode()) for s in params.stop), default=0) + 4

    @property
    def reach(self) -> int:
        """The most tokens in which a started stop string can end; 0 without stop strings."""
        return self._tail if self._params.stop else 0

    def check(self, token_ids: list[int]) -> FinishReason | None:
        """Return why a reply of these tokens has ended, or None. Call it for every token."""
        if token_ids[-1] in self._ends or self._ends_in_stop_string(token_ids):
            return "stop"
        return "length" if len(token_ids) >= self._params.max_tokens else None

    def _ends_in_stop_string(self, token_ids: list[int]) -> bool:
        if not self._params.stop:
            return False
        text = self._tokenizer.decode(
            token_ids[-self._tail :], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return any(stop in text for stop in self._params.stop)

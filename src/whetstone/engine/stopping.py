"""When a reply ends: an end-of-sequence token, a stop string, or its length."""

from __future__ import annotations

from typing import Any

from whetstone.sample import FinishReason
from whetstone.settings import Sampling


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a reply: those of the generation config and the tokenizer's own."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in (*ids, getattr(tokenizer, "eos_token_id", None)) if i is not None)


class StopRule:
    """Decides, after each token of a reply, whether it has ended and why."""

    def __init__(self, tokenizer: Any, ends: frozenset[int], params: Sampling) -> None:
        self._tokenizer = tokenizer
        self._ends = ends
        self._params = params
        # A token carries at least one byte. The room beyond the longest string is for a character
        # whose bytes began before it, and for a token that carries no text.
        self._tail = max((len(s.encode()) for s in params.stop), default=0) + 4

    @property
    def reach(self) -> int:
        """A stop string that has begun ends within so many tokens; 0 where there is none."""
        return self._tail if self._params.stop else 0

    def check(self, token_ids: list[int]) -> FinishReason | None:
        """The reason why a reply of these tokens has ended, or None. Call it for every token."""
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

"""Stop strings are found wherever the tokens' borders fall."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.settings import Sampling
from whetstone.engine.stopping import StopRule


def first_stop(tokenizer: Any, text: str, stops: tuple[str, ...]) -> int | None:
    """How many tokens a reply of this text has when the rule ends it."""
    rule = StopRule(tokenizer, frozenset(), Sampling(max_tokens=10_000, stop=stops))
    ids = tokenizer.encode(text)
    return next((i for i in range(1, len(ids) + 1) if rule.check(ids[:i]) == "stop"), None)


def test_a_stop_string_of_many_byte_characters_is_found(tokenizer: Any) -> None:
    text = "x = '⟨é🙂⟩' + y"
    assert first_stop(tokenizer, text, ("é🙂⟩",)) == len("x = '⟨é🙂⟩".encode())


@given(text=st.text(st.sampled_from("ab\n` é"), max_size=40), stop=st.text("ab\n`é", min_size=1, max_size=4))
def test_a_reply_ends_at_the_first_token_that_completes_a_stop_string(text: str, stop: str) -> None:
    tokenizer = _byte_tokenizer()
    at = text.find(stop)
    expected = None if at < 0 else len(text[: at + len(stop)].encode())
    assert first_stop(tokenizer, text, ("never", stop)) == expected


class _byte_tokenizer:
    """Bytes as tokens; hypothesis takes no fixtures of function scope, and none is needed."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int], **_: object) -> str:
        return bytes(ids).decode(errors="replace")

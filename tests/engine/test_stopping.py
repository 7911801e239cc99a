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


class ByteTokenizer:
    """Bytes as tokens; hypothesis takes no fixtures of function scope, and none is needed."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int], **_: object) -> str:
        return bytes(ids).decode(errors="replace")


class Counting(ByteTokenizer):
    """Counts the decoded tokens."""

    decoded = 0

    def decode(self, ids: list[int], **fields: object) -> str:
        self.decoded += len(ids)
        return super().decode(ids, **fields)


def test_a_reply_is_decoded_only_where_a_stop_string_may_end() -> None:
    tokenizer = Counting()
    assert first_stop(tokenizer, "some text " * 1000 + "END", ("END",)) == 10_003
    assert tokenizer.decoded < 50


def test_a_stop_string_of_many_byte_characters_is_found(tokenizer: Any) -> None:
    text = "x = '⟨é🙂⟩' + y"
    assert first_stop(tokenizer, text, ("é🙂⟩",)) == len("x = '⟨é🙂⟩".encode())


@given(text=st.text(st.sampled_from("ab\n` é"), max_size=40), stop=st.text("ab\n`é", min_size=1, max_size=4))
def test_a_reply_ends_at_the_first_token_that_completes_a_stop_string(text: str, stop: str) -> None:
    tokenizer = ByteTokenizer()
    at = text.find(stop)
    expected = None if at < 0 else len(text[: at + len(stop)].encode())
    assert first_stop(tokenizer, text, ("never", stop)) == expected

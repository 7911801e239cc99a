"""A prompt that is much too long is refused without encoding all of it, which would stop the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.environments.agents import PROBLEM, Numbered, Played, play, user
from tests.environments.scripted import TOKENIZER, Says
from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.environments.prompt import Prompt, encode_prompt, render_prompt
from whetstone.environments.replies import EngineReplies

LONG = 1_900_000
TEXTS = {
    "letters": "a" * LONG,
    "words": "lorem ipsum " * (LONG // 12),
    "blanks": " " * LONG,
    "lines": "\n" * LONG,
    "other letters": "é漢" * (LONG // 2),
    "special tokens": TOKENIZER.eos_token * (LONG // len(TOKENIZER.eos_token)),
}


class Counting:
    """The tokenizer of tests, which counts the characters that it encodes."""

    def __init__(self) -> None:
        self.encoded = 0
        self.chat_template = TOKENIZER.chat_template

    def encode(self, text: str, **more: Any) -> list[int]:
        self.encoded += len(text)
        return TOKENIZER.encode(text, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(TOKENIZER, name)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("chat", [True, False])
def test_a_prompt_that_is_much_too_long_is_encoded_in_part(text: str, chat: bool) -> None:
    tokenizer: Any = Counting()
    replies = EngineReplies(Says(lambda *_: ""), tokenizer, Sampling(), max_prompt_tokens=5000)  # pyright: ignore
    with pytest.raises(UserError, match=r"more than `environment.max_prompt_tokens` = 5000"):
        replies.draw(PROBLEM, Prompt(text, "", chat=chat), n=1, seed=0)
    assert tokenizer.encoded < LONG / 4


@pytest.mark.cost
@pytest.mark.drawn(2)
@pytest.mark.parametrize("length", [99_000, 101_000, 450_000])
@pytest.mark.parametrize("chat", [True, False])
def test_a_long_prompt_has_the_tokens_of_its_text(length: int, chat: bool) -> None:
    prompt = Prompt("lorem ipsum  é\n" * (length // 15), "", chat=chat)
    whole = TOKENIZER.encode(render_prompt(prompt, TOKENIZER), add_special_tokens=not chat)
    for most in (10**6, len(whole)):
        replies = EngineReplies(Says(lambda *_: ""), TOKENIZER, Sampling(), max_prompt_tokens=most)  # pyright: ignore
        assert replies.draw(PROBLEM, prompt, n=1, seed=0)[0] == whole
    short = EngineReplies(Says(lambda *_: ""), TOKENIZER, Sampling(), max_prompt_tokens=len(whole) - 1)  # pyright: ignore
    with pytest.raises(UserError, match="more than"):
        short.draw(PROBLEM, prompt, n=1, seed=0)


@pytest.mark.process
def test_messages_of_an_agent_that_are_much_too_long_are_encoded_in_part() -> None:
    """At the beginning, in a later turn, as the result of a tool, and in a fork."""
    tokenizer: Any = Counting()
    message = {"role": "tool", "content": TEXTS["words"]}

    async def agent(played: Played) -> float:
        first = await played.ask("a")
        before = [user("a"), {"role": "assistant", "content": first}]
        await played.ask("b")
        for messages in ([user(TEXTS["letters"])], [*before, message], [*before, user(TEXTS["blanks"])]):
            with pytest.raises(openai.BadRequestError, match=r"context|tokens"):
                await played.create(*messages)
        with pytest.raises(openai.BadRequestError, match="no room"):
            await played.ask(TEXTS["words"])
        return 1.0

    play(agent, Numbered(context=5000), tokenizer=tokenizer)
    assert tokenizer.encoded < 4 * LONG / 4


@pytest.mark.cost
def test_a_refused_prompt_costs_no_more_if_it_is_longer() -> None:
    costs: list[int] = []
    for length in (LONG // 2, LONG):
        tokenizer: Any = Counting()
        replies = EngineReplies(Says(lambda *_: ""), tokenizer, Sampling(), max_prompt_tokens=9000)  # pyright: ignore
        with pytest.raises(UserError):
            asyncio.run(replies.begin(PROBLEM, Prompt("a" * length, "", chat=True), seed=0))
        costs.append(tokenizer.encoded)
    assert costs[0] == costs[1]


class Framing(Counting):
    """A tokenizer that writes special tokens before and behind a text."""

    def encode(self, text: str, **more: Any) -> list[int]:
        inner = TOKENIZER.encode(text, add_special_tokens=False)
        both = [TOKENIZER.pad_token_id, *inner, TOKENIZER.eos_token_id]
        return both if more.get("add_special_tokens", True) else inner


@pytest.mark.parametrize("ending", ["", TOKENIZER.eos_token])
def test_plain_text_begins_with_a_special_token_and_is_not_ended_by_the_tokenizer(ending: str) -> None:
    tokenizer: Any = Framing()
    prompt = Prompt(f"lorem{ending}", "", chat=False)
    ids = encode_prompt(prompt, tokenizer)
    assert ids[:1] == [TOKENIZER.pad_token_id]
    assert TOKENIZER.decode(ids[1:]).startswith(f"lorem{ending}")
    assert (ids[-1] == TOKENIZER.eos_token_id) is bool(ending)
    replies = EngineReplies(Says(lambda *_: ""), tokenizer, Sampling(), max_prompt_tokens=50)  # pyright: ignore
    assert asyncio.run(replies.begin(PROBLEM, prompt, seed=0))[0] == ids

"""Replies in text, and the engine as the writer of them.

An engine knows token ids only. The text that a workflow reads is made of them here, for training and
evaluation alike; replies of an endpoint come as text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from msgspec import Struct

from whetstone.engine.engine import Completion, Engine, GenerationRequest
from whetstone.errors import UserError
from whetstone.problem import Problem
from whetstone.settings import Sampling
from whetstone.workflow.prompt import Prompt, Tokenizer, check_length, encoded, rendered, turned

ReplyEnd = Literal["stop", "length", "failed"]
"""Why a reply ended: by itself or at a stop text, at the token limit, or there is none at all."""

THINK, END_THINK = "<think>", "</think>"


class Reply(Struct, frozen=True):
    """One reply, without the prefix that it was given.

    ``text`` holds the thinking too, in ``<think>`` tags whatever way the model or the server marks it;
    thinking that never ended has no closing tag. ``tokens`` counts all of it, 0 where nobody says.
    ``thinking_tokens``, and ``prompt_tokens`` of what was read, are None where nobody counts them. ``error``
    says why a ``failed`` one failed. ``drawn`` has the tokens themselves where an engine of ours drew them.
    """

    index: int
    text: str
    finish_reason: ReplyEnd
    tokens: int = 0
    thinking_tokens: int | None = None
    error: str = ""
    prompt_tokens: int | None = None
    drawn: Completion | None = None


def failed(index: int, error: str, drawn: Completion | None = None) -> Reply:
    """The reply that could not be had."""
    return Reply(index, "", "failed", error=error, drawn=drawn)


def _opened(text: str) -> str:
    # Templates of thinking models begin the thinking; the reply then holds only its end.
    return THINK if text.rstrip().endswith(THINK) else ""


class EngineReplies:
    """An engine that is asked in text and answers in text, with one way of drawing."""

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, params: Sampling, *, max_prompt_tokens: int
    ) -> None:
        """A longer prompt than ``max_prompt_tokens`` is refused."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._params = params
        self._max_prompt_tokens = max_prompt_tokens

    @property
    def version(self) -> int:
        """The version of the engine's weights."""
        return self._engine.version

    def draw(
        self, problem: Problem, prompt: Prompt, *, n: int, seed: int
    ) -> tuple[list[int], AsyncIterator[Reply]]:
        """The prompt's token ids, and ``n`` replies to it, each as it ends; reply i is fixed by (seed, i).

        The engine has the request when this returns: calls that are made in one go enter its batch together,
        in their order. Raises UserError for a prompt that is too long.
        """
        request = self._request(problem, prompt, n, seed)
        completions = self._engine.generate(request)
        opened = _opened(rendered(prompt, self._tokenizer))
        return request.prompt_ids, self._read(completions, opened, len(request.prompt_ids))

    async def follow(
        self, prompt: Prompt, before: Sequence[int], said: str, *, seed: int
    ) -> tuple[list[int], Reply] | None:
        """The reply to what is ``said`` after the tokens ``before``, which end with a reply to ``prompt``,
        and the tokens between the two. None where the model's context has no room for more.

        No token of ``before`` is made anew: the conversation goes on from what was drawn.
        """
        text = turned(prompt, said, self._tokenizer)
        between = self._tokenizer.encode(text, add_special_tokens=False)
        if between and before[-1] == between[0] and not self._text(between[:1]):
            between = between[1:]  # the reply has ended its turn by itself
        request = GenerationRequest(prompt_ids=[*before, *between], params=self._params, n=1, seed=seed)
        try:
            self._engine.check(request)
        except UserError:
            return None
        completions = self._engine.generate(request)
        replies = [r async for r in self._read(completions, _opened(text), len(request.prompt_ids))]
        return between, replies[0]

    def check(self, problem: Problem, prompt: Prompt) -> None:
        """Raise the UserError that ``draw`` would raise."""
        self._engine.check(self._request(problem, prompt, 1, 0))

    def _request(self, problem: Problem, prompt: Prompt, n: int, seed: int) -> GenerationRequest:
        ids = encoded(prompt, self._tokenizer)
        check_length(problem, ids, self._max_prompt_tokens)
        return GenerationRequest(prompt_ids=ids, params=self._params, n=n, seed=seed)

    async def _read(
        self, completions: AsyncIterator[Completion], opened: str, prompt_tokens: int
    ) -> AsyncIterator[Reply]:
        async for completion in completions:
            yield self._reply(completion, opened, prompt_tokens)

    def _reply(self, completion: Completion, opened: str, prompt_tokens: int) -> Reply:
        if completion.finish_reason == "abort":
            return failed(completion.index, "the engine ended before the reply did", completion)
        text = opened + self._text(completion.token_ids)
        return Reply(
            completion.index,
            text,
            completion.finish_reason,
            len(completion.token_ids),
            self._thinking_tokens(text, completion.token_ids),
            prompt_tokens=prompt_tokens,
            drawn=completion,
        )

    def _thinking_tokens(self, text: str, ids: Sequence[int]) -> int:
        """How many of a reply's tokens lie before the end of its thinking."""
        if END_THINK in text:
            lengths = range(1, len(ids) + 1)
            return 1 + bisect_left(lengths, True, key=lambda m: END_THINK in self._text(ids[:m]))
        return len(ids) if THINK in text else 0

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)

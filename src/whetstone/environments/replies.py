"""The engine as a model client: replies as text.

An engine only knows token ids. This module converts them to the text that an environment reads, for training
and evaluation. Replies of an endpoint are text already.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from copy import copy

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, Engine, GenerationRequest, VersionTracker
from whetstone.environments.conversation import Conversation, Reply, ReplyLimits, failed_reply
from whetstone.environments.formats.reading import ReplyFormat
from whetstone.environments.prompt import (
    Message,
    Prompt,
    Tokenizer,
    check_length,
    encode_prompt,
    encode_text,
    next_turn,
    render_prompt,
)

# A longer text is encoded in parts that grow, until it is known to be too long or encoded as a whole. A text
# of 2 MB takes the tokenizer seconds, in which the event loop does not run.
_FIRST_PART, _PART_FACTOR = 100_000, 4
# Tokens at the end of a part, which may be others in the whole text.
_BORDER_TOKENS = 64


class GenerationProgress:
    """What an engine has generated for a prompt so far. ``tokens`` counts those of all replies that ended."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._oldest: int | None = None
        # With the version of the weights when the engine received it.
        self._requests: list[tuple[GenerationRequest, int]] = []
        self.tokens = 0

    def begin(self, request: GenerationRequest) -> None:
        """Note that the engine has received a request."""
        self._requests.append((request, self._engine.version))

    def add(self, completion: Completion) -> None:
        """Count a reply that has ended."""
        self.tokens += len(completion.token_ids)
        ended = [] if self._oldest is None else [self._oldest]
        self._oldest = min([*ended, *completion.versions[:1]], default=None)

    def end(self, request: GenerationRequest) -> None:
        """Note that all replies of a request have ended."""
        self._requests = [each for each in self._requests if each[0] is not request]

    def oldest_version(self) -> int:
        """Return a version of weights such that no token for the prompt, now or later, is older."""
        engine = self._engine
        tracker = engine if isinstance(engine, VersionTracker) else None
        running = [
            version if tracker is None else tracker.oldest_version(request)
            for request, version in self._requests
        ]
        ended = [] if self._oldest is None else [self._oldest]
        return min([engine.version, *ended, *running])


class EngineReplies:
    """Text replies from an engine, with one set of sampling settings."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        params: Sampling,
        *,
        max_prompt_tokens: int,
        routing: bool = False,
        supports: bool = False,
    ) -> None:
        """Prompts with more than ``max_prompt_tokens`` tokens are refused. ``routing``, ``supports``: whether
        replies have the experts that processed them, and the supports of their tokens, as training needs."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._format = ReplyFormat(tokenizer)
        self._params = params
        self._max_prompt_tokens = max_prompt_tokens
        self._routing = routing
        self._supports = supports
        self._progress = GenerationProgress(engine)

    def tracked(self) -> tuple[EngineReplies, GenerationProgress]:
        """Return a copy, and the progress of all replies that the copy is asked for."""
        copied = copy(self)
        copied._progress = GenerationProgress(self._engine)
        return copied, copied._progress

    @property
    def version(self) -> int:
        """The version of the engine's weights."""
        return self._engine.version

    def draw(
        self, problem: Problem, prompt: Prompt, *, n: int, seed: int, limits: ReplyLimits | None = None
    ) -> tuple[list[int], AsyncIterator[Reply]]:
        """Return the prompt's token ids and ``n`` replies, each as it ends; (seed, i) fixes reply i.

        The engine has the request when this returns. Calls without an await in between therefore enter its
        batch together, in order. Raises UserError for a prompt that is too long.
        """
        request = self._request(problem, prompt, n, seed, limits)
        drawn = self._generate(request, prompt, render_prompt(prompt, self._tokenizer))
        return request.prompt_ids, drawn

    async def begin(
        self, problem: Problem, prompt: Prompt, *, seed: int, limits: ReplyLimits | None = None
    ) -> tuple[list[int], Reply]:
        """Return the prompt's token ids and one reply; see ModelClient."""
        ids, drawn = self.draw(problem, prompt, n=1, seed=seed, limits=limits)
        [reply] = [reply async for reply in drawn]
        return ids, reply

    async def reply_to(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        *,
        seed: int,
        limits: ReplyLimits | None = None,
    ) -> tuple[list[int], Reply] | None:
        """Return the tokens of ``messages`` and the reply to them; see ModelClient.

        The tokens before are not encoded again: the conversation continues from the generated tokens.
        """
        # An evaluation does not keep the tokens of prompts.
        prompt_ids = conversation.prompt_ids or encode_prompt(conversation.prompt, self._tokenizer)
        before = [*prompt_ids, *conversation.response_ids()]
        text = next_turn(conversation.prompt, messages, self._tokenizer)
        params = self._limited(limits)

        def request_with(between: list[int]) -> GenerationRequest:
            request = self._engine_request([*before, *between], params, 1, seed)
            self._engine.check(request)
            return request

        try:
            between = self._encode(text, request_with)
            if between and self._format.ends_twice(before[-1], between[0]):
                between = between[1:]  # the reply already contains the end of its turn
            request = request_with(between)
        except UserError:
            return None
        drawn = self._generate(request, conversation.prompt, text)
        [reply] = [reply async for reply in drawn]
        return between, reply

    def check(self, problem: Problem, prompt: Prompt) -> None:
        """Raise the UserError that ``draw`` would raise."""
        self._engine.check(self._request(problem, prompt, 1, 0))

    def _request(
        self, problem: Problem, prompt: Prompt, n: int, seed: int, limits: ReplyLimits | None = None
    ) -> GenerationRequest:
        most = self._max_prompt_tokens
        ids = self._encode(
            render_prompt(prompt, self._tokenizer),
            lambda part: check_length(problem, part, most),
            special=not prompt.chat,
        )
        check_length(problem, ids, most)
        return self._engine_request(ids, self._limited(limits), n, seed)

    def _encode(self, text: str, check: Callable[[list[int]], object], *, special: bool = False) -> list[int]:
        """Return the tokens of a text. ``check`` raises for a beginning that is already too long."""
        size = _FIRST_PART
        while size < len(text):
            check(encode_text(text[:size], self._tokenizer, special=special)[:-_BORDER_TOKENS])
            size *= _PART_FACTOR
        return encode_text(text, self._tokenizer, special=special)

    def _engine_request(self, ids: list[int], params: Sampling, n: int, seed: int) -> GenerationRequest:
        return GenerationRequest(ids, params, n, seed, routing=self._routing, supports=self._supports)

    def _limited(self, limits: ReplyLimits | None) -> Sampling:
        if limits is None:
            return self._params
        most, stop = self._params.max_tokens, (*self._params.stop, *limits.stop)
        return self._params.model_copy(
            update={"max_tokens": min(most, limits.max_tokens or most), "stop": stop}
        )

    def _generate(self, request: GenerationRequest, prompt: Prompt, before: str) -> AsyncIterator[Reply]:
        """Hand a request to the engine, and return its replies. ``before`` is the text before them, at least
        from the end of the last turn."""
        completions = self._engine.generate(request)
        self._progress.begin(request)
        return self._read(completions, request, prompt, before)

    async def _read(
        self, completions: AsyncIterator[Completion], request: GenerationRequest, prompt: Prompt, before: str
    ) -> AsyncIterator[Reply]:
        try:
            async for completion in completions:
                self._progress.add(completion)
                yield self._reply(completion, prompt, before, len(request.prompt_ids))
        finally:
            self._progress.end(request)

    def _reply(self, completion: Completion, prompt: Prompt, before: str, prompt_tokens: int) -> Reply:
        if completion.finish_reason == "abort":
            return failed_reply(completion.index, "the engine ended before the reply did", completion)
        read = self._format.read(completion.token_ids, prompt, before)
        return Reply(
            completion.index,
            read.text,
            completion.finish_reason,
            len(completion.token_ids),
            read.thinking_tokens,
            prompt_tokens=prompt_tokens,
            drawn=completion,
            tool_calls=read.calls,
        )

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)

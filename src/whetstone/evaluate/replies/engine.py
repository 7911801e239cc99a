"""Replies from an engine that takes and returns token ids.

Problems go to the engine in waves, each a fixed stretch of the problem list: in bf16 the last bits of
a row's logits depend on which other rows share its batch, so the tokens drawn for one problem depend on
its neighbours. A wave begins with an empty batch and is a function of its problems alone. So an
evaluation that was interrupted gives the same replies when it goes on: a wave of which any reply
is missing is generated once more, whole, and only what is missing is taken from it. (As far as the
device repeats itself: on a CPU with the same number of threads it does.)
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence

from whetstone.engine.base import Completion, Engine, GenerationRequest, SamplingParams
from whetstone.errors import UserError
from whetstone.evaluate.replies.base import END_THINK, THINK, Question, Reply, failed
from whetstone.workflow.prompt import Tokenizer, check_length, encoded, rendered

WAVE_REPLIES = 256
"""Replies in a wave. At its end the engine's batch runs empty: the fewer replies, the more that costs."""

_Answers = asyncio.Queue[tuple[Question, Reply] | Exception | None]


class EngineWriter:
    """An engine as a ReplyWriter."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        params: SamplingParams,
        *,
        max_prompt_tokens: int,
        wave_replies: int = WAVE_REPLIES,
    ) -> None:
        """A longer prompt than ``max_prompt_tokens`` is not put to the engine: its replies failed."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._params = params
        self._max_prompt_tokens = max_prompt_tokens
        self._wave_replies = wave_replies

    async def write(self, questions: Iterable[Question]) -> AsyncGenerator[tuple[Question, Reply], None]:
        """Yield each wanted reply as it ends; see ReplyWriter. A defect of the engine is raised."""
        for wave in waves(questions, self._wave_replies):
            if not any(question.wanted for question in wave):
                continue
            answers: _Answers = asyncio.Queue()
            # All of a wave's requests are made in one go, so that they enter the batch together.
            started = [(question, self._start(question)) for question in wave]
            tasks = [asyncio.create_task(self._collect(*pair, answers)) for pair in started]
            running = len(tasks)
            try:
                while running:
                    item = await answers.get()
                    if isinstance(item, Exception):
                        raise item
                    if item is None:
                        running -= 1
                    elif item[1].index in item[0].wanted:
                        yield item
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, question: Question) -> AsyncIterator[Completion] | str:
        """The request, which runs from here on, or why the problem cannot be put to the engine."""
        ids = encoded(question.prompt, self._tokenizer)
        try:
            check_length(question.problem, ids, self._max_prompt_tokens)
            return self._engine.generate(
                GenerationRequest(prompt_ids=ids, params=self._params, n=question.n, seed=question.seed)
            )
        except UserError as error:
            return str(error)

    async def _collect(
        self, question: Question, request: AsyncIterator[Completion] | str, answers: _Answers
    ) -> None:
        """Hand on a request's replies, or the exception that ended it, and None at the end."""
        try:
            if isinstance(request, str):
                for index in range(question.n):
                    answers.put_nowait((question, failed(index, request)))
                return
            # Templates of thinking models begin the thinking; the reply then holds only its end.
            thinks = rendered(question.prompt, self._tokenizer).rstrip().endswith(THINK)
            async for completion in request:
                answers.put_nowait((question, self._reply(completion, thinks)))
        except Exception as error:
            answers.put_nowait(error)
        finally:
            answers.put_nowait(None)

    def _reply(self, completion: Completion, thinks: bool) -> Reply:
        if completion.finish_reason == "abort":
            return failed(completion.index, "the engine ended before the reply did")
        text = (THINK if thinks else "") + self._text(completion.token_ids)
        return Reply(
            completion.index,
            text,
            completion.finish_reason,
            len(completion.token_ids),
            self._thinking_tokens(text, completion.token_ids),
        )

    def _thinking_tokens(self, text: str, ids: Sequence[int]) -> int:
        """How many of a reply's tokens lie before the end of its thinking."""
        if END_THINK in text:
            lengths = range(1, len(ids) + 1)
            return 1 + bisect_left(lengths, True, key=lambda m: END_THINK in self._text(ids[:m]))
        return len(ids) if THINK in text else 0

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)


def waves(questions: Iterable[Question], replies: int) -> Iterator[list[Question]]:
    """Stretches of the list of at most so many replies, and at least one question."""
    wave: list[Question] = []
    for question in questions:
        if wave and sum(q.n for q in wave) + question.n > replies:
            yield wave
            wave = []
        wave.append(question)
    if wave:
        yield wave

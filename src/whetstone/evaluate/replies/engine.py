"""Replies from an engine, in waves.

Problems go to the engine in waves, each a fixed part of the problem list. In bf16 the last bits of a row's
logits depend on the other rows of its batch, so the sampled tokens of a problem depend on its neighbours. A
wave begins with an empty batch and depends only on its problems. So an interrupted evaluation that is resumed
gives the same replies: a wave with missing replies is generated again as a whole, and only the missing ones
are used. This holds as far as the device repeats itself, as a CPU with the same number of threads does.

Further turns of a wave are requested together, once no earlier turn is running, and the next wave begins when
all conversations of the wave have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.environments.conversation import Conversation, Reply, ReplyLimits, failed_reply
from whetstone.environments.prompt import Message, Prompt
from whetstone.environments.replies import EngineReplies
from whetstone.environments.turn_barrier import TurnBarrier
from whetstone.evaluate.replies.writer import ReplyRequest

# Replies in a wave. At its end the engine's batch runs empty, so small waves cost more.
WAVE_REPLIES = 256

_Answers = asyncio.Queue[tuple[ReplyRequest, Reply] | Exception | None]


class EngineWriter:
    """An engine as a ReplyWriter."""

    def __init__(self, replies: EngineReplies, *, wave_replies: int = WAVE_REPLIES) -> None:
        """Replies to a prompt that ``replies`` rejects, such as one that is too long, are failed replies."""
        self._replies = replies
        self._wave_replies = wave_replies
        self.barrier = TurnBarrier(synchronized=True)

    async def begin(
        self, problem: Problem, prompt: Prompt, *, seed: int, limits: ReplyLimits | None = None
    ) -> tuple[list[int], Reply]:
        """See ModelClient."""
        return await self._replies.begin(problem, prompt, seed=seed, limits=limits)

    async def reply_to(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        *,
        seed: int,
        limits: ReplyLimits | None = None,
    ) -> tuple[list[int], Reply] | None:
        """See ModelClient."""
        return await self._replies.reply_to(conversation, messages, seed=seed, limits=limits)

    async def close(self) -> None:
        """See ReplyWriter. The engine stays open."""

    async def write(
        self, questions: Iterable[ReplyRequest], *, several_turns: bool = False
    ) -> AsyncGenerator[tuple[ReplyRequest, Reply], None]:
        """Yield each wanted reply as it ends; see ReplyWriter. A defect of the engine is raised."""
        for wave in waves(questions, self._wave_replies):
            # A wave depends only on its own problems, so a finished one can be left out.
            if not any(question.wanted for question in wave):
                continue
            results: _Answers = asyncio.Queue()
            # All requests of a wave start before the first reply is read, so that they enter the batch
            # together.
            started = [(question, self._start(question)) for question in wave]
            if several_turns:
                self.barrier.register(sum(question.n for question in wave))
            tasks = [asyncio.create_task(self._collect(*pair, results)) for pair in started]
            running = len(tasks)
            try:
                while running:
                    item = await results.get()
                    if isinstance(item, Exception):
                        raise item
                    if item is None:
                        running -= 1
                    # The whole wave is generated again; replies of an earlier run are already counted.
                    elif several_turns or item[1].index in item[0].wanted:
                        yield item
                if several_turns:
                    await self.barrier.wait_idle()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def waiting(self) -> str:
        """See ReplyWriter."""
        return "the engine is at work"

    def failures(self) -> str:
        """See ReplyWriter."""
        return ""

    def _start(self, question: ReplyRequest) -> AsyncIterator[Reply] | str:
        """Start sampling and return the stream of replies, or the reason why the problem cannot
        be sampled."""
        try:
            _, replies = self._replies.draw(
                question.problem, question.prompt, n=question.n, seed=question.seed
            )
            return replies
        except UserError as error:
            return str(error)

    async def _collect(
        self, question: ReplyRequest, replies: AsyncIterator[Reply] | str, results: _Answers
    ) -> None:
        """Put the replies to a request into ``results``, or the exception that ended them, and None at the
        end."""
        try:
            if isinstance(replies, str):
                # All n fail, for the same reason: the prompt.
                for index in range(question.n):
                    results.put_nowait((question, failed_reply(index, replies)))
                return
            async for reply in replies:
                results.put_nowait((question, reply))
        except Exception as error:
            results.put_nowait(error)
        finally:
            # The reader counts these to know when the wave has ended.
            results.put_nowait(None)


def waves(questions: Iterable[ReplyRequest], replies: int) -> Iterator[list[ReplyRequest]]:
    """Split the list into waves of at most ``replies`` replies, and at least one request."""
    wave: list[ReplyRequest] = []
    for question in questions:
        if wave and sum(q.n for q in wave) + question.n > replies:
            yield wave
            wave = []
        wave.append(question)
    if wave:
        yield wave

"""An engine that says what a script tells it to, and keeps what it was asked; and episodes with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program
from whetstone.core.sample import Group
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.engine.scratch import build_tokenizer
from whetstone.environments.environment import Environment
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import RolloutRequest, run_groups
from whetstone.judge import Judge, Judgement

TOKENIZER: Any = build_tokenizer(["def f(x):\n    return x"], 300)
TOKENIZER.chat_template = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}" + TOKENIZER.eos_token + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


class Says:
    """``script`` maps the text of a prompt and the number of a reply to the reply."""

    version = 3

    def __init__(self, script: Callable[[str, int], str], context: int = 10**6) -> None:
        self.script, self.context = script, context
        self.asked: list[str] = []

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        text = TOKENIZER.decode(request.prompt_ids)
        self.asked.append(text)
        for index in reversed(range(request.n)):
            await asyncio.sleep(0)
            ids = [*TOKENIZER.encode(self.script(text, index)), TOKENIZER.eos_token_id]
            yield Completion(index, ids, [-1.0] * len(ids), [self.version] * len(ids), "stop")

    def check(self, request: GenerationRequest) -> None:
        if len(request.prompt_ids) > self.context:
            raise UserError("no room")


def in_turn(*replies: Sequence[str]) -> Callable[[str, int], str]:
    """Of each conversation the replies, one for each turn, told apart by the markers of the template."""

    def script(text: str, index: int) -> str:
        turn = text.count("[assistant]") - 1
        if turn:  # a later turn is asked alone: its conversation is the one whose first reply it holds
            index = next(i for i, said in enumerate(replies) if f"[assistant]{said[0]}" in text)
        return replies[index][turn]

    return script


async def played(
    environment: Environment,
    engine: Any,
    problem: Problem,
    n: int = 1,
    *,
    judge: Any = None,
    tokenizer: Any = TOKENIZER,
    max_tokens: int = 64,
    max_prompt_tokens: int = 9999,
    routing: bool = False,
    **options: Any,
) -> Group:
    """Play ``n`` episodes of a problem with one scripted model. ``options``: of every judgement."""
    replies = EngineReplies(
        engine,
        tokenizer,
        Sampling(max_tokens=max_tokens),
        max_prompt_tokens=max_prompt_tokens,
        routing=routing,
    )
    request = RolloutRequest({"policy": replies}, judge, n, options=options)
    return (await run_groups(environment, problem, request))["policy"]


class SharedJudge:
    """One judge of this process for every event loop of the tests of a file."""

    def __init__(self, judge: Judge) -> None:
        self.judge_itself = judge
        self.minimum_tier = judge.minimum_tier

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        return await asyncio.wrap_future(self.judge_itself.submit(problem, program, **options))

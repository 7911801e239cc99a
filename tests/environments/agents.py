"""Agents of tests: they play episodes over real sockets against a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from openai import AsyncOpenAI

from tests.environments.scripted import TOKENIZER, Says
from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.sample import Group, Sample
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.environments.agent import AgentEnvironment, AgentOptions
from whetstone.environments.episode import Episode
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import RolloutRequest, run_groups
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import Outcome
from whetstone.environments.turn_barrier import TurnBarrier

SECRET = "7391846"
PROBLEM = Problem("add", "Print the sum.", StdinTests([StdinCase("1 2\n", SECRET)]))
END = TOKENIZER.eos_token

Agent = Callable[["Played"], Awaitable[float | None]]


class Played:
    """What an agent of a test gets: its episode, and where the model is."""

    def __init__(self, episode: Episode, base_url: str, api_key: str) -> None:
        self.episode, self.base_url, self.api_key = episode, base_url, api_key
        self.client: Any = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0, timeout=60)
        self.history: list[Any] = []

    async def create(self, *messages: Any, **fields: Any) -> Any:
        """Send messages as they are."""
        fields = {"model": "any", "messages": list(messages), **fields}
        return await self.client.chat.completions.create(**fields)

    async def ask(self, text: str, **fields: Any) -> str:
        """Continue the history with a text of the user, and return the reply's text."""
        self.history.append(user(text))
        answer = (await self.create(*self.history, **fields)).choices[0].message
        self.history.append(assistant(answer.content))
        return answer.content


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


class Plays(AgentEnvironment):
    """Runs an agent of a test, which returns the reward."""

    def __init__(self, agent: Agent, **options: Any) -> None:
        super().__init__(EnvironmentSection(), AgentOptions.model_validate(options))
        self.agent = agent
        self.errors: list[Exception] = []

    async def play(self, problem: Problem, episode: Episode, base_url: str, api_key: str) -> float | None:
        played = Played(episode, base_url, api_key)
        async with played.client:
            try:
                return await self.agent(played)
            except Exception as error:
                self.errors.append(error)
                raise

    async def score(self, problem: Problem, episode: Episode, result: float | None) -> Outcome:
        return Outcome(reward=result, accepted=result == 1.0)


class Numbered(Says):
    """Replies ``r1``, ``r2``, … in the order of the requests. It obeys ``max_tokens`` and stop texts."""

    def __init__(self, script: Callable[[str, int], str] | None = None, **more: Any) -> None:
        super().__init__(script or (lambda text, index: f"r{len(self.asked)}"), **more)
        self.requests: list[GenerationRequest] = []
        self.drawn: list[list[int]] = []

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.requests.append(request)
        async for one in super().generate(request):
            ids, reason = one.token_ids[: request.params.max_tokens], one.finish_reason
            for n in range(len(ids)):
                if any(stop in TOKENIZER.decode(ids[: n + 1]) for stop in request.params.stop):
                    ids = ids[: n + 1]
                    break
            reason = "length" if len(ids) == request.params.max_tokens < len(one.token_ids) else reason
            self.drawn.append(ids)
            # Every token has a log-prob of its own, so that a mask cannot be off by one.
            logprobs = [-float(len(self.drawn)) - n / 100 for n in range(len(ids))]
            yield Completion(one.index, ids, logprobs, [self.version] * len(ids), reason)


async def group_of(
    environment: AgentEnvironment, engine: Any, n: int = 1, *, judge: Any = None, **more: Any
) -> Group:
    """Play episodes and close the environment."""
    params = more.pop("params", Sampling(max_tokens=200))
    tokenizer = more.pop("tokenizer", TOKENIZER)
    replies = EngineReplies(engine, tokenizer, params, max_prompt_tokens=more.pop("max_prompt_tokens", 5000))
    barrier = TurnBarrier(synchronized=more.pop("synchronized", False))
    problem = more.pop("problem", PROBLEM)
    try:
        async with asyncio.timeout(120):
            asked = RolloutRequest({"policy": replies}, judge, n, barrier=barrier)
            return (await run_groups(environment, problem, asked))["policy"]
    finally:
        await environment.close()


def play(
    agent: Agent, engine: Any = None, n: int = 1, *, options: Any = None, fails: bool = False, **more: Any
) -> list[Sample]:
    """The samples of ``n`` episodes of an agent. ``fails``: it is meant to fail."""
    environment = Plays(agent, **(options or {}))
    samples = asyncio.run(group_of(environment, engine or Numbered(), n, **more)).samples
    if environment.errors and not fails:
        raise environment.errors[0]
    return samples


def trained(sample: Sample) -> list[int]:
    """The tokens of a sample with a loss."""
    return [i for i, wrote in zip(sample.response_ids, sample.written(), strict=True) if wrote]


def check_once(samples: Sequence[Sample], engine: Numbered) -> None:
    """Every generated token has a loss in exactly one sample, with the log-prob of the engine."""
    found = [
        (token, logprob)
        for sample in samples
        for token, logprob, wrote in zip(sample.response_ids, sample.logprobs, sample.written(), strict=True)
        if wrote
    ]
    expected = [
        (token, -float(number) - n / 100)
        for number, ids in enumerate(engine.drawn, 1)
        for n, token in enumerate(ids)
    ]
    assert sorted(found) == sorted(expected)
    for sample in samples:
        rest = zip(sample.logprobs, sample.written(), strict=True)
        assert not any(logprob for logprob, wrote in rest if not wrote)

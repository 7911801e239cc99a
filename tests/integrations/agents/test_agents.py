"""Agents of other libraries, which only get a base URL and a key, play episodes through the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from whetstone.core.problem import Problem, StdinCase, StdinTests
from whetstone.core.sample import Sample
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.environments.agent import AgentEnvironment, AgentOptions
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import RolloutRequest, run_groups
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import Outcome

pytestmark = pytest.mark.integration

PROBLEM = Problem("add", "What is 17 plus 25?", StdinTests([StdinCase("", "42")]))
END = "\x03"


class Characters:
    """A tokenizer with one token for each character."""

    chat_template = "there is one"

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False) -> str:
        text = "".join(map(chr, ids))
        return text.replace(END, "") if skip_special_tokens else text

    def apply_chat_template(self, turns: list[dict[str, Any]], **more: Any) -> str:
        tools = f"[tools]{json.dumps(more['tools'])}" if more.get("tools") else ""
        ends = ("", END)
        said = "".join(f"[{t['role']}]{t['content']}{ends[t['role'] == 'assistant']}" for t in turns)
        return f"{tools}{said}[assistant]"


class Says:
    """Writes the given replies, in the order of the requests."""

    version = 0

    def __init__(self, *replies: str) -> None:
        self.replies = replies
        self.prompts: list[str] = []

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.prompts.append(Characters().decode(request.prompt_ids))
        ids = Characters().encode(self.replies[len(self.prompts) - 1] + END)
        await asyncio.sleep(0)
        yield Completion(0, ids, [-1.0] * len(ids), [0] * len(ids), "stop")

    def check(self, request: GenerationRequest) -> None: ...


class Plays(AgentEnvironment):
    def __init__(self, agent: Callable[[str, str], Any]) -> None:
        super().__init__(EnvironmentSection(), AgentOptions())
        self.agent = agent
        self.errors: list[Exception] = []

    async def play(self, problem: Problem, episode: Any, base_url: str, api_key: str) -> str:
        try:
            return str(await self.agent(base_url, api_key))
        except Exception as error:
            self.errors.append(error)
            raise

    async def score(self, problem: Problem, episode: Any, result: str) -> Outcome:
        return Outcome(reward=float(result.strip() == "42"))


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def play(agent: Callable[[str, str], Any], engine: Says) -> list[Sample]:
    async def run() -> list[Sample]:
        environment = Plays(agent)
        params = Sampling(max_tokens=2000)
        replies: Any = EngineReplies(engine, Characters(), params, max_prompt_tokens=100_000)
        try:
            asked = RolloutRequest({"policy": replies}, None, 1)
            return (await run_groups(environment, PROBLEM, asked))["policy"].samples
        finally:
            await environment.close()
            if environment.errors:
                raise environment.errors[0]

    return asyncio.run(run())


def trained_text(sample: Sample) -> str:
    pairs = zip(sample.response_ids, sample.written(), strict=True)
    return Characters().decode([token for token, wrote in pairs if wrote])


async def with_openai_agents(base_url: str, api_key: str) -> str:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    @function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        model = OpenAIChatCompletionsModel("policy", client)
        agent = Agent(name="adds", instructions="Use the tools.", model=model, tools=[add])
        return (await Runner.run(agent, PROBLEM.statement)).final_output


def test_an_agent_of_openai_agents_plays_one_conversation() -> None:
    engine = Says(call("add", a=17, b=25), "42")
    [sample] = play(with_openai_agents, engine)
    assert sample.reward == 1.0
    assert trained_text(sample) == f"{call('add', a=17, b=25)}{END}42{END}"
    [(start, stop)] = sample.given
    assert Characters().decode(sample.response_ids[start:stop]) == "[tool]42[assistant]"
    assert "Add two numbers." in engine.prompts[0]


async def with_smolagents(base_url: str, api_key: str) -> str:
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        return a + b

    model = OpenAIModel("policy", api_base=base_url, api_key=api_key)
    agent = ToolCallingAgent(tools=[add], model=model, verbosity_level=0)
    return str(await asyncio.to_thread(agent.run, PROBLEM.statement))


def test_an_agent_of_smolagents_plays_though_it_rewrites_its_history() -> None:
    """It writes calls into the text of its messages, so each of its requests is a conversation."""
    replies = [call("add", a=17, b=25), call("final_answer", answer="42")]
    engine = Says(*replies)
    samples = play(with_smolagents, engine)
    assert [sample.reward for sample in samples] == [1.0, 1.0]
    assert [trained_text(sample) for sample in samples] == [reply + END for reply in replies]
    assert not any(sample.given for sample in samples)
    for sample, prompt in zip(samples, engine.prompts, strict=True):
        assert Characters().decode(sample.prompt_ids) == prompt
    assert "Calling tools" in engine.prompts[1]


async def with_smolagents_code(base_url: str, api_key: str) -> str:
    from smolagents import CodeAgent, OpenAIModel

    model = OpenAIModel("policy", api_base=base_url, api_key=api_key)
    agent = CodeAgent(tools=[], model=model, verbosity_level=0)
    return str(await asyncio.to_thread(agent.run, PROBLEM.statement))


def test_an_agent_of_smolagents_that_writes_code_ends_its_replies_at_stop_texts() -> None:
    engine = Says("I add.\n<code>\nfinal_answer(17 + 25)\n</code>")
    [sample] = play(with_smolagents_code, engine)
    assert sample.reward == 1.0
    assert trained_text(sample) == f"{engine.replies[0]}{END}"

"""Environments that an agent plays: what it earns, what happens when it fails, and a command as the agent."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.environments.agents import END, Numbered, Played, Plays, group_of, play, trained, user
from tests.environments.scripted import TOKENIZER
from tests.evaluate.scripted_server import Scripted, completion, serving
from whetstone.core.errors import UserError
from whetstone.core.problem import Limits, Problem, StdinCase, StdinTests
from whetstone.core.sample import Sample
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Completion, GenerationRequest
from whetstone.environments.agent import CommandAgent
from whetstone.environments.replies import EngineReplies
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.endpoint import EndpointModel
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.replies.settings import EndpointSettings
from whetstone.evaluate.results import SampleResult
from whetstone.judge import AsyncJudge

pytestmark = pytest.mark.process

SECRET = "7391846"
PROBLEM = Problem(
    "p/add",
    "Add the numbers.",
    StdinTests([StdinCase("1 7391845\n", SECRET)]),
    limits=Limits(cpu_s=20.0, memory_mb=256, output_mb=8),
)
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"


async def crash(played: Played) -> float:
    await played.ask("a")
    raise ValueError("a defect of the harness")


async def exit_early(played: Played) -> float:
    await played.ask("a")
    raise SystemExit(3)


async def cancel_itself(played: Played) -> float:
    await played.ask("a")
    raise asyncio.CancelledError


async def fail_before(played: Played) -> float:
    raise ValueError("a defect of the harness")


async def meet_a_limit_before(played: Played) -> float:
    return float(await played.ask("b" * 40000))


async def fail_in_a_group(played: Played) -> float:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(crash(played))
        tasks.create_task(asyncio.Event().wait())
    return 1.0


async def fail_after_an_unknown_role(played: Played) -> float:
    await played.ask("a")
    await played.create({"role": "robot", "content": "a"})
    return 1.0


async def read_the_reply(played: Played) -> float:
    return float((await played.ask("a")).split("answer:")[1])


async def recurse(played: Played) -> float:
    async def parse(depth: int) -> float:
        return await parse(depth + 1)

    await played.ask("a")
    return await parse(0)


async def never_end(played: Played) -> float:
    asked = asyncio.create_task(played.ask("a"))
    try:
        await asyncio.Event().wait()
    finally:
        await asked  # however late the reply comes
    return 1.0


async def ask_for_ever(played: Played) -> float:
    while True:
        await played.ask("a")


async def read_too_much(played: Played) -> float:
    await played.ask("a")
    return float(await played.ask("b" * 4000))


@pytest.mark.drawn(8)
@pytest.mark.parametrize(
    ("agent", "options", "reward", "calls"),
    [
        (crash, {}, 0.0, 1.0),
        (crash, {"failed_reward": None}, None, 1.0),
        (fail_before, {}, None, 0.0),
        (fail_before, {"failed_reward": -1.0}, None, 0.0),
        (meet_a_limit_before, {}, None, 1.0),
        (fail_in_a_group, {}, 0.0, 1.0),
        (fail_after_an_unknown_role, {}, 0.0, 1.0),
        (read_the_reply, {}, 0.0, 1.0),
        (recurse, {}, 0.0, 1.0),
        (exit_early, {}, 0.0, 1.0),
        (cancel_itself, {}, 0.0, 1.0),
        (crash, {"failed_reward": -1.0}, -1.0, 1.0),
        (exit_early, {"failed_reward": -1.0}, -1.0, 1.0),
        (cancel_itself, {"failed_reward": -1.0}, -1.0, 1.0),
        (never_end, {"deadline_s": 0.1}, 0.0, 1.0),
        (never_end, {"deadline_s": 0.1, "failed_reward": None}, None, 1.0),
        (ask_for_ever, {"calls": 3}, 0.0, 3.0),
        (ask_for_ever, {"calls": 3, "limit_reward": None}, None, 3.0),
        (ask_for_ever, {"prompt_tokens": 30}, 0.0, 2.0),
        (read_too_much, {}, 0.0, 2.0),
    ],
)
def test_a_failure_of_the_agent_ends_its_episode_and_not_the_run(
    agent: Any, options: Any, reward: float | None, calls: float
) -> None:
    engine = Numbered(context=1000)
    for sample in play(agent, engine, 2, options=options, fails=True):
        assert sample.reward == reward
        assert sample.accepted == (None if reward is None else False)
        if not sample.response_ids:
            assert agent in (fail_before, meet_a_limit_before), "what the model said is kept"
            continue
        assert sample.metrics["agent_failed"] == 1.0
        assert sample.metrics["calls"] == calls
        assert trained(sample)


def test_an_agent_that_meets_a_limit_and_answers_nevertheless_is_scored() -> None:
    async def agent(played: Played) -> float:
        await played.ask("a")
        with pytest.raises(openai.BadRequestError, match="the 1 calls are used up"):
            await played.ask("b")
        return 0.5

    [sample] = play(agent, options={"calls": 1})
    assert (sample.reward, sample.metrics["agent_failed"]) == (0.5, 0.0)


class Aborts(Numbered):
    """The engine ends while it writes the second reply."""

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        async for one in super().generate(request):
            second = len(self.requests) == 2
            yield Completion(0, one.token_ids, one.logprobs, one.versions, "abort") if second else one


def test_an_episode_with_a_failed_reply_has_no_reward() -> None:
    async def agent(played: Played) -> float:
        await played.ask("a")
        with pytest.raises(openai.InternalServerError, match="the reply failed"):
            await played.ask("b")
        played.history.pop()
        assert await played.ask("b") == "r3", "a retry continues from the reply before"
        return 1.0

    samples = play(agent, Aborts())
    assert [sample.reward for sample in samples] == [None, None]
    assert [sample.finish_reason for sample in samples] == ["abort", "stop"]


def test_a_broken_engine_ends_the_run() -> None:
    class Broken(Numbered):
        async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
            raise RuntimeError("out of memory")
            yield

    async def agent(played: Played) -> float:
        with pytest.raises(openai.InternalServerError):
            await played.ask("a")
        return 1.0

    with pytest.raises(BaseExceptionGroup) as raised:
        play(agent, Broken())
    assert "out of memory" in str(raised.value.exceptions[0])


SOLVER = """
    import json, os, sys, urllib.request

    problem = sys.stdin.read()

    def ask(messages):
        request = urllib.request.Request(
            os.environ["OPENAI_BASE_URL"] + "/chat/completions",
            json.dumps({"messages": messages, "model": "m"}).encode(),
            {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            return json.load(response)["choices"][0]["message"]

    messages = [{"role": "user", "content": problem}]
    messages += [ask(messages), {"role": "user", "content": "Check it."}]
    print(ask(messages)["content"])
"""


def command(tmp_path: Path, source: str, **options: Any) -> EnvironmentSection:
    program = tmp_path / "agent.py"
    program.write_text(textwrap.dedent(source))
    chosen = {"command": [sys.executable, str(program)], **options}
    return EnvironmentSection.model_validate({"kind": "agent", "options": chosen})


def solve(text: str, index: int) -> str:
    return RIGHT if "Check it." in text else "```python\nprint(3)\n```"


async def judged(section: EnvironmentSection, engine: Any, n: int = 1) -> list[Sample]:
    environment = section.build()
    assert isinstance(environment, CommandAgent)
    environment.check(PROBLEM)
    async with AsyncJudge(1) as judge:
        return (await group_of(environment, engine, n, judge=judge, problem=PROBLEM)).samples


def test_a_command_plays_and_its_answer_is_judged(tmp_path: Path) -> None:
    engine = Numbered(solve)
    [one, two] = asyncio.run(judged(command(tmp_path, SOLVER), engine, 2))
    for sample in (one, two):
        assert (sample.reward, sample.accepted) == (1.0, True)
        assert sample.judgement is not None
        assert sample.program == "print(sum(map(int, input().split())))\n"
        assert TOKENIZER.decode(trained(sample)) == f"```python\nprint(3)\n```{END}{RIGHT}{END}"
    assert "Add the numbers." in engine.asked[0]
    [wrong] = asyncio.run(judged(command(tmp_path, SOLVER), Numbered(lambda *_: "```python\nprint(3)\n```")))
    assert (wrong.reward, wrong.accepted) == (0.0, False)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "source",
    ["raise SystemExit('it broke')", "print('x' * (2 << 20))", "import os; os.kill(os.getpid(), 9)"],
    ids=["exit", "output", "signal"],
)
def test_a_failing_command_gets_the_failed_reward_of_the_recipe(tmp_path: Path, source: str) -> None:
    asks = SOLVER.replace("print(ask(messages)", "ask(messages); (0")
    failing = asks + textwrap.indent(f"\n{source}\n", "    ")
    for options, reward in (({}, 0.0), ({"failed_reward": -0.5}, -0.5)):
        section = command(tmp_path, failing, **options)
        [sample] = asyncio.run(judged(section, Numbered(solve)))
        assert (sample.reward, sample.accepted, sample.judgement) == (reward, False, None)
    [sample] = asyncio.run(judged(command(tmp_path, source), Numbered(solve)))
    assert sample.reward is None, "the model was not asked"


def test_settings_without_effect_and_a_missing_command_are_refused(tmp_path: Path) -> None:
    for fields, words in [
        ({"system": "s"}, "`system` has no effect"),
        ({"prefix": "p"}, "`prefix` has no effect"),
        ({"chat": False}, "`chat: false` has no effect"),
        ({"answer_format": "think_answer"}, "`answer_format` has no effect"),
        ({"options": {"command": []}}, "command"),
        ({"options": {}}, "command"),
        ({"options": {"command": ["x"], "calls": 0}}, "calls"),
    ]:
        with pytest.raises(ValueError, match=words):
            EnvironmentSection.model_validate({"kind": "agent", "options": {"command": ["x"]}, **fields})
    missing = EnvironmentSection.model_validate({"kind": "agent", "options": {"command": ["no-such-agent"]}})
    with pytest.raises(UserError, match="no-such-agent: no such program"):
        missing.build().check(PROBLEM)


def test_an_evaluation_plays_the_same_agent(tmp_path: Path) -> None:
    section = command(tmp_path, SOLVER)
    plan = SamplingPlan(n=3, k=(1, 3), max_tokens=200)
    results: list[SampleResult] = []
    engine: Any = Numbered(solve)

    async def run() -> float:
        environment = section.build()
        replies = EngineReplies(engine, TOKENIZER, plan, max_prompt_tokens=5000)
        try:
            async with AsyncJudge(1) as judge:
                found = await evaluate(
                    [PROBLEM], EngineWriter(replies), environment, judge, plan, record=results.append
                )
        finally:
            await environment.close()
        return found.pass_at[1].value

    assert asyncio.run(run()) == 1.0
    assert sorted(result.index for result in results) == [0, 1, 2]
    for result in results:
        assert (result.accepted, result.turns, result.metrics["calls"]) == (True, 2, 2.0)
        assert result.tokens == len(TOKENIZER.encode(f"```python\nprint(3)\n```{END}{RIGHT}{END}"))


def test_an_evaluation_of_an_endpoint_plays_it_too(tmp_path: Path) -> None:
    """The endpoint gets the messages and the limits of the agent, and the sampling of the plan."""
    fields = '"model": "m", "max_tokens": 30, "stop": ["X"], "temperature": 2'
    limited = SOLVER.replace('"model": "m"', fields)
    section = command(tmp_path, limited)
    plan = SamplingPlan(n=1, max_tokens=200, temperature=0.5, stop=("END",))
    results: list[SampleResult] = []

    async def run(url: str) -> float:
        environment = section.build()
        writer = EndpointModel(url, None, EndpointSettings(concurrency=1)).writer(plan, section)
        try:
            async with AsyncJudge(1) as judge:
                found = await evaluate([PROBLEM], writer, environment, judge, plan, record=results.append)
        finally:
            await environment.close()
        return found.pass_at[1].value

    with serving(Scripted(lambda _, body, before: completion(RIGHT if before else "Hm."))) as server:
        assert asyncio.run(run(server.url)) == 1.0
    first, second = [body for _, body in server.requests]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    assert second["messages"][1:] == [
        {"role": "assistant", "content": "Hm."},
        {"role": "user", "content": "Check it."},
    ]
    for body in (first, second):
        assert (body["max_tokens"], body["stop"], body["temperature"]) == (30, ["END", "X"], 0.5)
    [result] = results
    assert (result.accepted, result.turns, result.tokens) == (True, 2, 10)


def test_log_probs_and_masks_of_a_real_model_are_those_of_the_trainer() -> None:
    """Of a conversation, a fork and a retry, computed again on the merged samples."""
    import torch

    from whetstone.engine.scratch import build_miniature
    from whetstone.engine.torch_engine import TorchEngine
    from whetstone.trainer.forward import Forward
    from whetstone.trainer.packing import PromptReplies

    model, tokenizer = build_miniature("qwen2", ["def f(x):\n    return x\n"] * 3, 5)

    async def agent(played: Played) -> float:
        first = await played.ask("Write a function.")
        await played.ask("Again, with a test.")
        await played.create(user("Write a function."), {"role": "assistant", "content": first}, user("No."))
        await played.create(user("Write a function."))
        return 1.0

    async def run() -> list[Sample]:
        engine = TorchEngine(model, tokenizer)
        replies = Sampling(max_tokens=24, temperature=0.8)
        environment = Plays(agent)
        group = await group_of(environment, engine, 2, params=replies, tokenizer=tokenizer)
        await engine.close()
        assert not environment.errors
        return group.samples

    samples = asyncio.run(run())
    assert len(samples) == 6
    forward = Forward(model, temperature=0.8)
    for sample in samples:
        assert sample.prompt_ids
        batch = forward.pack([PromptReplies(sample.prompt_ids, [sample.response_ids])], 4096)
        again = forward.log_probs(batch, len(sample.response_ids))
        written = torch.tensor(sample.written())
        found = torch.tensor(sample.logprobs)
        assert written.sum() > 0
        assert torch.allclose(found[written], again[written], atol=1e-3)
        assert not found[~written].any()
        assert not torch.allclose(found[~written], again[~written], atol=1e-3) or not (~written).any()
    assert sum((~torch.tensor(sample.written())).any().item() for sample in samples) == 2


def test_the_environment_of_the_command_has_no_expected_value(tmp_path: Path) -> None:
    note = tmp_path / "seen"
    source = f"import os, sys\nopen({str(note)!r}, 'w').write(repr(dict(os.environ)) + sys.stdin.read())\n"
    asyncio.run(judged(command(tmp_path, source), Numbered()))
    seen = note.read_text()
    assert "Add the numbers." in seen
    assert SECRET not in seen
    assert os.environ["PATH"] in seen

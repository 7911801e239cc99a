"""Agents that only know a base URL and a key play episodes, and the samples have the tokens as generated."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import openai
import pytest

from tests.environments.agents import (
    END,
    Numbered,
    Played,
    assistant,
    check_once,
    play,
    trained,
    user,
)
from tests.environments.scripted import TOKENIZER
from whetstone.core.sample import Sample
from whetstone.core.settings import Sampling

pytestmark = pytest.mark.process

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run",
            "description": "Runs code.",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}},
        },
    }
]


def text_of(ids: list[int]) -> str:
    return TOKENIZER.decode(ids)


def written_out(sample: Sample) -> list[tuple[str, str]]:
    """A sample as prompt, replies (``+``) and given texts (``-``), in order."""
    found = [("prompt", text_of(sample.prompt_ids))]
    edges = [0, *(edge for span in sample.given for edge in span), len(sample.response_ids)]
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        if start < stop:
            found.append(("-" if number % 2 else "+", text_of(sample.response_ids[start:stop])))
    return found


def test_calls_with_a_common_prefix_are_one_sample_and_no_token_is_trained_twice() -> None:
    """A conversation of two turns, a fork after its first reply, a retry of its first call, and another."""

    async def agent(played: Played) -> float:
        first = [{"role": "system", "content": "s"}, user("a")]
        assert (await played.create(*first)).choices[0].message.content == "r1"
        second = [*first, assistant("r1"), user("b")]
        assert (await played.create(*second)).choices[0].message.content == "r2"
        forked = [*first, assistant("r1"), user("c")]
        assert (await played.create(*forked)).choices[0].message.content == "r3"
        assert (await played.create(*second)).choices[0].message.content == "r4"
        assert (await played.create(*first)).choices[0].message.content == "r5"
        assert (await played.create(user("z"))).choices[0].message.content == "r6"
        assert (await played.create(*forked, assistant("r3"), user("d"))).choices[0].message.content == "r7"
        return 0.75

    engine = Numbered()
    samples = play(agent, engine)
    begun, end = "[system]s[user]a[assistant]", END
    assert [written_out(sample) for sample in samples] == [
        [("prompt", begun), ("+", f"r1{end}"), ("-", "[user]b[assistant]"), ("+", f"r2{end}")],
        [
            ("prompt", f"{begun}r1{end}[user]c[assistant]"),
            ("+", f"r3{end}"),
            ("-", "[user]d[assistant]"),
            ("+", f"r7{end}"),
        ],
        [("prompt", f"{begun}r1{end}[user]b[assistant]"), ("+", f"r4{end}")],
        [("prompt", begun), ("+", f"r5{end}")],
        [("prompt", "[user]z[assistant]"), ("+", f"r6{end}")],
    ]
    check_once(samples, engine)
    assert {sample.reward for sample in samples} == {0.75}
    assert samples[0].metrics == {"calls": 7.0, "conversations": 5.0, "agent_failed": 0.0}
    # The engine was asked with exactly the tokens that the samples hold before each reply.
    asked = [request.prompt_ids for request in engine.requests]
    for sample in samples:
        starts = [0, *(stop for _, stop in sample.given)]
        assert all([*sample.prompt_ids, *sample.response_ids[:start]] in asked for start in starts)
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds), "a retry would repeat the reply"


def test_the_client_of_openai_reads_replies_whole_and_in_a_stream_sync_and_async() -> None:
    async def agent(played: Played) -> float:
        usage = {"include_usage": True}
        whole = await played.create(user("a"), temperature=0.1, top_p=0.5, seed=3)
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("r1", "stop")
        assert whole.usage.prompt_tokens == len(TOKENIZER.encode("[user]a[assistant]"))
        assert whole.usage.completion_tokens == len(TOKENIZER.encode(f"r1{END}"))
        chunks = [c async for c in await played.create(user("a"), stream=True, stream_options=usage)]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "r2"
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert chunks[-1].usage == whole.usage
        raw = await played.client.chat.completions.with_raw_response.create(
            messages=[user("a")], model="any", temperature=0.1, seed=3
        )
        assert set(raw.headers["x-whetstone-ignored"].split(", ")) == {"temperature", "seed"}
        assert [model.id async for model in played.client.models.list()] == ["policy"]

        def ask() -> list[Any]:
            with openai.OpenAI(base_url=played.base_url, api_key=played.api_key) as client:
                sent: Any = {"messages": [user("b")], "model": "any"}
                said = client.chat.completions.create(**sent).choices[0].message.content
                stream = client.chat.completions.create(**sent, stream=True)
                return [said, "".join(chunk.choices[0].delta.content or "" for chunk in stream)]

        assert await asyncio.to_thread(ask) == ["r4", "r5"]
        return 1.0

    engine = Numbered()
    samples = play(agent, engine, params=Sampling(max_tokens=20, temperature=0.9))
    check_once(samples, engine)
    assert {request.params.temperature for request in engine.requests} == {0.9}, "the recipe decides"


def test_an_agent_ends_replies_early_and_never_makes_them_longer() -> None:
    async def agent(played: Played) -> float:
        cut = await played.create(user("a"), max_tokens=3)
        assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 3)
        assert (await played.ask("go", stop=["!"])) == "one"
        assert (await played.ask("on", max_completion_tokens=4000)) == "one! two"
        return 1.0

    engine = Numbered(lambda text, index: "one! two", context=10**6)
    samples = play(agent, engine, params=Sampling(max_tokens=30, stop=("END",)))
    assert [(r.params.max_tokens, r.params.stop) for r in engine.requests] == [
        (3, ("END",)),
        (30, ("END", "!")),
        (30, ("END",)),
    ]
    # What the client does not get back stays in the context, so the conversation goes on from it.
    assert [written_out(sample)[1:] for sample in samples[1:]] == [
        [("+", "one!"), ("-", "[user]on[assistant]".join([END, ""])), ("+", f"one! two{END}")]
    ]
    check_once(samples, engine)


def test_tool_calls_are_answered_and_their_outputs_continue_the_conversation() -> None:
    call = '<tool_call>\n{"name": "run", "arguments": {"code": "1+1", "n": 2}}\n</tool_call>'

    def script(text: str, index: int) -> str:
        return "It is 2." if "[tool]" in text else f"Let me see.\n{call}"

    async def agent(played: Played) -> float:
        answer = (await played.create(user("1+1?"), tools=TOOLS)).choices[0]
        assert (answer.finish_reason, answer.message.content) == ("tool_calls", "Let me see.")
        [called] = answer.message.tool_calls
        assert called.function.name == "run"
        assert json.loads(called.function.arguments) == {"code": "1+1", "n": 2}
        # Clients write the arguments in their own way.
        called.function.arguments = '{"n":2,   "code": "1+1"}'
        history = [user("1+1?"), answer.message.model_dump(exclude_none=True)]
        output = {"role": "tool", "tool_call_id": called.id, "content": [{"type": "text", "text": "2"}]}
        end = (await played.create(*history, output, tools=TOOLS)).choices[0]
        assert (end.finish_reason, end.message.content) == ("stop", "It is 2.")
        plain = (await played.create(user("1+1?"), tools=TOOLS, tool_choice="none")).choices[0]
        assert (plain.finish_reason, plain.message.tool_calls) == ("stop", None)
        assert call in plain.message.content
        chunks = [chunk async for chunk in await played.create(user("?"), tools=TOOLS, stream=True)]
        deltas = [d for chunk in chunks for d in chunk.choices[0].delta.tool_calls or []]
        assert [(d.index, d.function.name) for d in deltas] == [(0, "run")]
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        return 1.0

    engine = Numbered(script)
    samples = play(agent, engine)
    assert len(samples) == 3
    assert written_out(samples[0])[1:] == [
        ("+", f"Let me see.\n{call}{END}"),
        ("-", "[tool]2[assistant]"),
        ("+", f"It is 2.{END}"),
    ]
    assert "Runs code." in text_of(samples[0].prompt_ids)
    check_once(samples, engine)


def test_other_tools_begin_another_conversation() -> None:
    """They are part of the prompt, so the model has not read the history with them."""

    async def agent(played: Played) -> float:
        await played.ask("a")
        await played.create(*played.history, user("b"), tools=TOOLS)
        assert await played.ask("c") == "r3"
        return 1.0

    first, second = play(agent)
    assert "Runs code." not in text_of([*first.prompt_ids, *first.response_ids])
    assert "Runs code." in text_of(second.prompt_ids)
    assert [text_of(trained(sample)) for sample in (first, second)] == [f"r1{END}r3{END}", f"r2{END}"]


def test_thinking_is_a_field_of_its_own_and_stays_in_the_context() -> None:
    async def agent(played: Played) -> float:
        message = (await played.create(user("a"))).choices[0].message
        assert (message.content, message.reasoning_content) == ("\nyes", "hm")
        cut = (await played.create(user("cut"))).choices[0].message
        assert (cut.content, cut.reasoning_content) == ("", "never ends")
        await played.create(user("a"), assistant("yes"), user("b"))
        return 1.0

    engine = Numbered(lambda text, i: "<think>never ends" if "cut" in text else "<think>hm</think>\nyes")
    samples = play(agent, engine)
    assert len(samples) == 2
    assert written_out(samples[0])[2:] == [
        ("-", "[user]b[assistant]"),
        ("+", f"<think>hm</think>\nyes{END}"),
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"messages": []}, "`messages` must be 1 to"),
        ({"messages": [{"role": "critic", "content": "a"}, user("b")]}, "unknown role 'critic'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type `text`"),
        ({"messages": [{"role": "user", "content": 3}]}, "content"),
        ({"n": 2}, "`n` must be 1"),
        ({"logprobs": True}, "`logprobs`"),
        ({"response_format": {"type": "json_object"}}, "`response_format`"),
        ({"tool_choice": {"type": "function", "function": {"name": "run"}}}, "`tool_choice`"),
        ({"functions": [{"name": "run"}]}, "use `tools`"),
        ({"tools": [{"type": "retrieval"}]}, "tools"),
        ({"max_tokens": 0}, "`max_tokens` must be at least 1"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"stop": ["x"] * 17}, "`stop`"),
        ({"stop": ""}, "`stop`"),
    ],
)
def test_what_cannot_have_its_effect_is_refused_as_openai_does(fields: Any, words: str) -> None:
    async def agent(played: Played) -> float:
        with pytest.raises(openai.BadRequestError, match=words) as refused:
            await played.client.chat.completions.create(**{"messages": [user("a")], "model": "m", **fields})
        assert refused.value.type == "invalid_request_error"
        return 1.0

    engine = Numbered()
    assert [sample.reward for sample in play(agent, engine)] == [None], "no sample without a reply"
    assert not engine.requests


def test_parallel_calls_of_an_episode_are_all_answered_one_after_the_other() -> None:
    async def agent(played: Played) -> float:
        answers = await asyncio.gather(*(played.create(user(f"q{n}")) for n in range(8)))
        said = {answer.choices[0].message.content for answer in answers}
        assert said == {f"r{n}" for n in range(1, 9)}
        return 1.0

    engine = Numbered()
    samples = play(agent, engine)
    assert len(samples) == 8
    check_once(samples, engine)


def test_episodes_of_a_group_that_is_synchronized_are_sampled_in_the_same_order() -> None:
    def run() -> list[str]:
        async def agent(played: Played) -> float:
            # The first episodes are the slowest.
            for turn in range(2):
                for _ in range(20 - 5 * played.episode.index):
                    await asyncio.sleep(0)
                await played.ask(f"e{played.episode.index} t{turn}")
            return 1.0

        engine = Numbered(lambda text, index: "r")
        play(agent, engine, 4, synchronized=True)
        return [text.rpartition("[user]")[2].removesuffix("[assistant]") for text in engine.asked]

    order = [f"e{n} t{turn}" for turn in range(2) for n in range(4)]
    assert run() == order

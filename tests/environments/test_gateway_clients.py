"""Messages as the clients of common agents send them, with the chat templates of common models."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.environments.agents import END, Numbered, Played, assistant, check_once, play, user
from tests.environments.scripted import TOKENIZER
from tests.environments.test_gateway import TOOLS, text_of, written_out
from tests.environments.test_gateway_attacks import players, post, run
from whetstone.environments.chat_api import read_request

SYSTEM = {"role": "system", "content": "s"}


def tool_calls(arguments: Any) -> list[Any]:
    return [{"id": "c", "type": "function", "function": {"name": "run", "arguments": arguments}}]


CALLED = '[assistant]\n<tool_call>\n{"name": "run", "arguments": {"code": "1"}}\n</tool_call>'
EMPTY_CALL = CALLED.replace('{"code": "1"}', "{}")
SENT: list[tuple[list[Any], str]] = [
    ([SYSTEM], "[system]s"),
    ([user("a"), SYSTEM], "[user]a[system]s"),
    ([user("a"), assistant("b"), SYSTEM], f"[user]a[assistant]b{END}[system]s"),
    ([{"role": "developer", "content": "d"}, user("a")], "[system]d[user]a"),
    ([user("a"), assistant("b")], f"[user]a[assistant]b{END}"),
    ([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], "[user]a"),
    ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}, "c"]}], "[user]a\nb\nc"),
    ([{"role": "user", "content": None}], "[user]"),
    ([{"role": "user", "content": "a", "name": "ann", "cache_control": {"type": "ephemeral"}}], "[user]a"),
    (
        [user("a"), {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]}, user("c")],
        f"[user]a[assistant]b{END}[user]c",
    ),
    (
        [user("a"), {"role": "assistant", "content": None, "refusal": "no"}, user("c")],
        f"[user]a[assistant]no{END}[user]c",
    ),
    (
        [user("a"), {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, user("c")],
        f"[user]a[assistant]no{END}[user]c",
    ),
    (
        [
            user("a"),
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "b"}],
                "function_call": None,
                "tool_calls": None,
                "audio": None,
                "annotations": [],
                "reasoning_content": "hm",
            },
            user("c"),
        ],
        f"[user]a[assistant]b{END}[user]c",
    ),
    *(
        (
            [
                user("a"),
                {"role": "assistant", "content": None, "tool_calls": tool_calls(arguments)},
                {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "2"}]},
            ],
            f"[user]a{CALLED}{END}[user]<tool_response>\n2\n</tool_response>",
        )
        for arguments in ('{"code": "1"}', {"code": "1"})
    ),
    (
        [
            user("a"),
            {
                "role": "assistant",
                "content": "",
                "function_call": {"name": "run", "arguments": {"code": "1"}},
            },
            {"role": "function", "name": "run", "content": "2"},
        ],
        f"[user]a{CALLED}{END}[user]<tool_response>\n2\n</tool_response>",
    ),
    *(
        (
            [user("a"), {"role": "assistant", "tool_calls": tool_calls(arguments)}, user("b")],
            f"[user]a{EMPTY_CALL}{END}[user]b",
        )
        for arguments in (None, "", "{}")
    ),
]


@pytest.mark.drawn(8)
@pytest.mark.process
@pytest.mark.parametrize(("messages", "prompt"), SENT)
def test_messages_of_common_agents_are_read(messages: list[Any], prompt: str) -> None:
    async def agent(played: Played) -> float:
        body = {"model": "m", "messages": messages}
        answer = await played.client.post("/chat/completions", body=body, cast_to=object)
        assert answer["choices"][0]["message"]["content"] == "r1"
        return 1.0

    [sample] = play(agent)
    assert text_of(sample.prompt_ids) == f"{prompt}[assistant]"


@pytest.mark.parametrize(
    "fields",
    [
        {"parallel_tool_calls": False, "tools": TOOLS, "tool_choice": "required"},
        {"max_completion_tokens": 9, "max_tokens": None, "n": 1, "stop": None, "stream_options": None},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"temperature": 0.0, "top_p": 1, "seed": 1, "user": "u", "metadata": {"a": "b"}, "store": False},
        {"reasoning_effort": "low", "logprobs": False, "top_logprobs": None, "logit_bias": {}},
        {"response_format": {"type": "text"}, "tools": [], "functions": None, "function_call": None},
        {"model": None, "tools": None, "tool_choice": None, "prediction": None, "service_tier": "auto"},
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": None}}]},
    ],
)
def test_fields_of_common_clients_are_read(fields: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [user("a")], **fields}
    assert read_request(json.dumps(body).encode()).messages == [user("a")]


@pytest.mark.process
def test_replies_that_come_back_in_another_form_continue_their_conversation() -> None:
    call = '<tool_call>\n{"name": "run", "arguments": {"code": "1", "n": 2}}\n</tool_call>'

    async def agent(played: Played) -> float:
        await played.create(user("a"), tools=TOOLS)
        first: dict[str, Any] = {"role": "assistant", "content": [{"type": "output_text", "text": "I try."}]}
        first["tool_calls"] = tool_calls({"n": 2, "code": "1"})
        output = {"role": "tool", "tool_call_id": "c", "content": [{"type": "input_text", "text": "2"}]}
        await played.create(user("a"), first, output, tools=TOOLS)
        again: dict[str, Any] = {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "x"}, "I try."],
        }
        again["function_call"] = {"name": "run", "arguments": '{"code":"1","n":2}'}
        late = [{"role": "function", "name": "run", "content": "2"}, SYSTEM]
        await played.create(user("a"), first, output, again, *late, tools=TOOLS)
        return 1.0

    engine = Numbered(lambda text, index: f"I try.\n{call}")
    [sample] = play(agent, engine)
    reply = ("+", f"I try.\n{call}{END}")
    assert written_out(sample)[1:] == [
        reply,
        ("-", "[tool]2[assistant]"),
        reply,
        ("-", "[tool]2[system]s[assistant]"),
        reply,
    ]
    check_once([sample], engine)


@pytest.mark.process
def test_a_call_of_qwen3_coder_reaches_the_agent_with_types() -> None:
    said = "I try.\n<function=run>\n<parameter=code>\nprint('</tool_call>')\n</parameter>\n</function>"

    async def agent(played: Played) -> float:
        answer = (await played.create(user("a"), tools=TOOLS)).choices[0]
        assert (answer.finish_reason, answer.message.content) == ("tool_calls", "I try.")
        [called] = answer.message.tool_calls
        assert json.loads(called.function.arguments) == {"code": "print('</tool_call>')"}
        back = answer.message.model_dump(exclude_none=True)
        await played.create(user("a"), back, {"role": "tool", "content": "2"}, tools=TOOLS)
        return 1.0

    [sample] = play(agent, Numbered(lambda text, index: said))
    assert [kind for kind, _ in written_out(sample)[1:]] == ["+", "-", "+"]


_BEGIN = "{% for m in messages %}"
_END = "[{{ m['role'] }}]{{ m['content'] }}{% if m['role'] == 'assistant' %}" + END + "{% endif %}"
_END += "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
_FIRST_ONLY = "{% if m['role'] == 'system' and not loop.first %}{{ raise_exception('system') }}{% endif %}"
TEMPLATES = {
    # As Qwen3.5: a system message must be the first, and there must be one of a user.
    "first_only": "{% if not messages | selectattr('role', 'equalto', 'user') | list %}"
    + "{{ raise_exception('no user') }}{% endif %}"
    + _BEGIN
    + _FIRST_ONLY
    + _END,
    # As Gemma 2: no system message, and turns must alternate.
    "alternating": _BEGIN
    + "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
    + _END,
    # As DeepSeek-R1: the last system message is written first, and no other.
    "collecting": "{% set ns = namespace(s='') %}"
    + _BEGIN
    + "{% if m['role'] == 'system' %}{% set ns.s = m['content'] %}{% endif %}{% endfor %}{{ ns.s }}"
    + "{% for m in messages if m['role'] != 'system' %}"
    + _END,
    # As Llama 3: any role, without space around the text.
    "any": _BEGIN + _END.replace("m['content']", "m['content'] | trim"),
}
DIALOGUES = [
    [SYSTEM],
    [SYSTEM, user("a")],
    [user("a"), SYSTEM],
    [SYSTEM, {"role": "developer", "content": "d"}, user("a")],
    [user("a"), user("b")],
    [user(" a\n"), assistant("b"), SYSTEM],
    [SYSTEM, user("a"), {"role": "tool", "content": "t"}],
]


@pytest.mark.process
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_no_order_of_roles_is_refused_or_left_out_by_a_template(name: str, tools: Any) -> None:
    tokenizer: Any = type("Copy", (), {})()
    for each in ("encode", "decode", "eos_token_id"):
        setattr(tokenizer, each, getattr(TOKENIZER, each))
    tokenizer.chat_template = TEMPLATES[name]

    def apply_chat_template(messages: Any, **more: Any) -> str:
        return TOKENIZER.apply_chat_template(messages, chat_template=TEMPLATES[name], **more)

    tokenizer.apply_chat_template = apply_chat_template

    async def agent(played: Played) -> float:
        more = {"tools": tools} if tools else {}
        for dialogue in DIALOGUES:
            first = await played.create(*dialogue, **more)
            said = [*dialogue, assistant(first.choices[0].message.content)]
            for following in ([SYSTEM], [user("x"), SYSTEM], [{"role": "tool", "content": "t"}, user("y")]):
                await played.create(*said, *following, **more)
        return 1.0

    engine = Numbered()
    samples = play(agent, engine, tokenizer=tokenizer, options={"calls": 64})
    check_once(samples, engine)
    for sample, dialogue in zip(samples[::3], DIALOGUES, strict=True):
        prompt = text_of(sample.prompt_ids)
        assert all(message["content"].strip() in prompt for message in dialogue)
        assert tools is None or "Runs code." in prompt
        between = "".join(text for kind, text in written_out(sample) if kind == "-")
        assert "s" in between


@pytest.mark.process
def test_the_cause_of_a_refusal_is_that_of_the_text() -> None:
    causes = {
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}': "half of a surrogate pair",
        b'{"messages": [{"role": "user", "content": "a\\udc00b"}]}': "half of a surrogate pair",
        b'{"messages": [{"role": "user", "content": "\\ud800\\u0041"}]}': "half of a surrogate pair",
        b'{"messages": [], "x": {"\\udfff": 1}}': "half of a surrogate pair",
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}': "is not UTF-8",
        b'{"messages": [{"role": "user", "content": "\xff"}]}': "is not UTF-8",
        b'{"messages": [': "is not JSON",
        b'{"messages": 3}': "Expected `array`",
    }

    async def attack() -> None:
        async with players(Numbered(), 1) as (agent,):
            for body, words in causes.items():
                status, said, _ = await post(agent, body)
                assert (status, words in said["error"]["message"]) == (400, True), said
            paired = b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00"}]}'
            assert (await post(agent, paired))[0] == 200

    run(attack)


@pytest.mark.process
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": [{"type": "thinking", "thinking": "x"}]},
        {"role": "user", "content": 3},
        {"role": "critic", "content": "a"},
        {"role": "assistant", "tool_calls": tool_calls(3)},
    ],
)
def test_messages_that_the_model_cannot_read_are_refused(message: Any) -> None:
    async def agent(played: Played) -> float:
        with pytest.raises(openai.BadRequestError):
            await played.create(message, user("b"))
        return 1.0

    play(agent)

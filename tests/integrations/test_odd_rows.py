"""Replies and problems of types that other trainers may have."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import Limits, Problem, StdinCase, StdinTests
from whetstone.integrations import verl
from whetstone.integrations.openrlhf import RewardFunction
from whetstone.integrations.rewards import Rewards
from whetstone.integrations.rows import problem_of, reply_text
from whetstone.integrations.verifiers import code_reward

ADD = Problem("t/add", "Print the sum of two numbers.", StdinTests([StdinCase("1 2\n", "3\n")]))
TEXT = msgspec.json.encode(ADD).decode()
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
HUGE = "9" * 5000


def said(*messages: tuple[str, object]) -> list[dict[str, object]]:
    return [{"role": role, "content": content} for role, content in messages]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (None, ""),
        ([], ""),
        ((), ""),
        (np.str_(RIGHT), RIGHT),
        (said(("assistant", RIGHT)), RIGHT),
        (tuple(said(("assistant", RIGHT))), RIGHT),
        (np.array(said(("assistant", "no"), ("assistant", RIGHT)), dtype=object), RIGHT),
        (said(("assistant", None)), ""),
        (said(("assistant", [RIGHT])), RIGHT),
        (said(("assistant", ({"type": "text", "text": RIGHT},))), RIGHT),
        (said(("assistant", [{"type": "image"}, {"type": "text", "text": RIGHT}])), RIGHT),
        ([{"content": RIGHT}], RIGHT),
        ({"role": "assistant", "content": RIGHT}, RIGHT),
        # What a tool or a user said is not the model's reply: TRL ends with a tool's message if the reply to
        # it was cut off.
        (said(("assistant", "no"), ("tool", RIGHT)), "no"),
        (said(("assistant", RIGHT), ("user", "thanks")), RIGHT),
        (said(("assistant", RIGHT), ("tool", "no"), ("tool", "no")), RIGHT),
        (said(("tool", RIGHT)), ""),
        ([*said(("assistant", RIGHT)), {}], RIGHT),
        ([{"role": "assistant", "tool_calls": []}, *said(("tool", RIGHT))], ""),
        ([{"role": "assistant", "content": "a", "reasoning_content": "b"}], "<think>b</think>a"),
        ([{"role": "assistant", "reasoning_content": "b"}], "<think>b"),
    ],
)
def test_the_reply_is_the_last_message_of_the_model(reply: object, text: str) -> None:
    assert reply_text(reply) == text


def test_a_reply_or_content_of_another_type_is_a_user_error() -> None:
    replies = (5, 1.5, True, RIGHT.encode(), [RIGHT], [1], [None], [[RIGHT]], np.array([RIGHT]), {1})
    for reply in (*replies, np.array([1, 2])):
        with pytest.raises(UserError, match="a reply is a"):
            reply_text(reply)
    for content in (5, {"text": RIGHT}, [5], [None], RIGHT.encode()):
        with pytest.raises(UserError, match="the content of a message is a"):
            reply_text(said(("assistant", content)))


@pytest.mark.parametrize(
    "text",
    [
        np.str_(TEXT),
        TEXT.encode(),
        TEXT.replace("Print", "\\ud800Print"),
        TEXT.replace("Print", "\ud800Print"),
    ],
)
def test_a_problem_is_read_from_every_kind_of_text(text: str | bytes) -> None:
    assert problem_of(text).id == "t/add"


def test_nulls_that_a_table_adds_to_an_object_are_no_fields() -> None:
    plain = json.loads(TEXT)
    padded = {**dict.fromkeys(Problem.__struct_fields__), **plain}
    padded["tests"] = {"asserts": None, "class": None, "result": None, **plain["tests"]}
    padded["limits"] = {"cpu_s": None, "memory_mb": 64.0}
    found = problem_of(padded)
    assert found.tests == problem_of(TEXT).tests
    assert (found.limits.cpu_s, found.limits.memory_mb) == (Limits().cpu_s, 64.0)


def test_a_problem_may_have_integers_of_thousands_of_digits() -> None:
    case = '{"args":[1],"expected":' + HUGE + "}"
    text = '{"id":"a","statement":"","tests":{"kind":"call","function":"f","cases":[' + case + "]}}"
    tests: Any = problem_of(text).tests
    assert tests.cases[0].expected == 10**5000 - 1


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"tests":' * 100_000, "[]", "5", "9" * 200_000])
def test_a_text_that_is_no_problem_is_a_user_error(text: str) -> None:
    with pytest.raises(UserError, match="the problem of a reply"):
        problem_of(text)


def test_lists_of_different_lengths_and_replies_that_are_no_text_are_user_errors() -> None:
    with Rewards() as rewards:
        for replies, problems in (([RIGHT] * 2, [TEXT]), ([RIGHT], [TEXT] * 2), ([RIGHT], [])):
            with pytest.raises(UserError, match="each reply needs one"):
                rewards.score(replies, problems)
        reply: Any
        for reply in (None, 5, RIGHT.encode(), [RIGHT]):
            with pytest.raises(UserError, match="a reply is a"):
                rewards.score([reply], [TEXT])


@pytest.mark.cost
def test_an_openrlhf_reply_of_end_tokens_is_read_in_linear_time() -> None:
    """Each removed end token copied the rest of the reply."""
    function = RewardFunction()

    def seconds(count: int) -> float:
        query = "Q" + RIGHT + "</s>\n" * count
        began = time.thread_time()
        assert function.replies([query], ["Q"]) == [RIGHT]
        return time.thread_time() - began

    seconds(1000)
    assert min(seconds(200_000) for _ in range(3)) < 4 * min(seconds(100_000) for _ in range(3)) + 0.05
    assert seconds(200_000) < 5.0


def test_openrlhf_queries_without_their_prompts_are_a_user_error() -> None:
    with pytest.raises(UserError, match="2 queries and 1 prompts"):
        RewardFunction().replies(["a", "b"], ["a"])


@pytest.mark.process
def test_messages_of_other_versions_of_verifiers_are_read() -> None:
    task = SimpleNamespace(problem=TEXT)
    trace = SimpleNamespace(assistant_messages=[SimpleNamespace(content=RIGHT)])
    assert asyncio.run(code_reward(task, trace)) == 1.0
    with pytest.raises(UserError, match="has no `problem`"):
        asyncio.run(code_reward(SimpleNamespace(), trace))


@pytest.mark.process
@pytest.mark.parametrize("judge", [{}, {"judge": None}, {"judge": {"max_cases": 1}}])
def test_verl_may_pass_an_empty_section(judge: dict[str, Any]) -> None:
    assert verl.compute_score_sync("s", RIGHT, TEXT, **judge) == 1.0

"""The reward server of OpenRLHF admits and refuses requests as all other servers do."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from typing import Any

import httpx2
import pytest

from tests.integrations.tasks import ADD
from whetstone.core.errors import UserError
from whetstone.integrations import reward_url
from whetstone.integrations.openrlhf import RewardFunction
from whetstone.integrations.reward_url import reward_app
from whetstone.integrations.rewards import ScoredReply
from whetstone.integrations.rows import problem_of

ASKS = {"query": ["ask right"], "prompts": ["ask"], "labels": [ADD]}


class Scores:
    """Rewards 1 without a judge. A reply may wait until it is cancelled, or fail."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def scored(self, reply: str, problem: object) -> ScoredReply:
        if "wait" in reply:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        if "broken" in reply:
            raise UserError("it is broken")
        return ScoredReply(problem_of(problem), 1.0, None, None, accepted=True)

    def number(self, scored: ScoredReply) -> float:
        assert scored.reward is not None
        return scored.reward


def app(*tokens: str, scores: Scores | None = None) -> Any:
    function = RewardFunction()
    function.rewards = scores or Scores()  # type: ignore[assignment]
    return reward_app(function, tokens)


async def answer(
    to: Any, body: Any = ASKS, url: str = "http://127.0.0.1/", method: str = "POST", **headers: str
) -> tuple[int, str]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=to)) as client:
        found = await client.request(method, url, content=content, headers=headers)
        return found.status_code, found.text


def asked(*args: Any, **more: Any) -> tuple[int, str]:
    return asyncio.run(answer(*args, **more))


@pytest.mark.parametrize(
    ("url", "headers", "status"),
    [
        ("http://127.0.0.1:8090/get_reward", {}, 200),
        ("http://localhost/", {}, 200),
        ("http://127.0.0.1/", {"origin": "http://evil.example"}, 403),
        ("http://127.0.0.1/", {"origin": "null"}, 403),
        ("http://evil.example/", {}, 421),
        ("http://127.0.0.1.evil.example:8090/", {}, 421),
        ("http://127.0.0.1/?token=any", {"host": "evil.example"}, 421),
    ],
)
def test_without_tokens_only_programs_of_this_machine_are_answered(
    url: str, headers: dict[str, str], status: int
) -> None:
    assert asked(app(), url=url, **headers)[0] == status


@pytest.mark.parametrize(
    ("url", "headers", "status"),
    [
        ("http://judge/?token=secret", {}, 200),
        ("http://judge/any/where?a=1&token=secret", {}, 200),
        ("http://any:secret@judge/", {}, 200),
        ("http://judge/", {"authorization": "Bearer secret"}, 200),
        ("http://judge/", {}, 401),
        ("http://judge/?token=", {}, 401),
        ("http://judge/?token=secret2", {}, 401),
        ("http://judge/?token=%FF%00", {}, 401),
        ("http://judge/?" + "a=1&" * 300 + "token=secret", {}, 401),
        ("http://judge/?token=other", {"authorization": "Bearer secret"}, 401),
    ],
)
def test_with_tokens_clients_that_have_one_may_use_any_name(
    url: str, headers: dict[str, str], status: int
) -> None:
    assert asked(app("secret"), url=url, **headers)[0] == status


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def labelled(label: bytes) -> bytes:
    return b'{"query": ["ask a"], "prompts": ["ask"], "labels": [' + label + b"]}"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (nested(100_000), 400),
        (b"[" * 100_000, 400),
        (labelled(nested(100_000)), 400),
        *((labelled(b'{"tests": ' + nested(depth) + b"}"), 400) for depth in (1, 100, 500, 900, 990, 1000)),
        *((labelled(json.dumps(nested(depth).decode()).encode()), 400) for depth in (500, 990, 100_000)),
        (labelled(json.dumps('{"tests": ' + nested(990).decode() + "}").encode()), 400),
        (labelled(b",".join([b"[]"] * 2_100_000)), 413),
        (b"", 400),
        (b"\xff\xfe", 400),
        (b"null", 400),
        ({**ASKS, "query": "text"}, 400),
        ({**ASKS, "labels": []}, 400),
        ({**ASKS, "labels": [None]}, 400),
        ({**ASKS, "labels": [3]}, 400),
        ({**ASKS, "prompts": ["other" * 100]}, 400),
        ({**ASKS, "query": ["ask broken"]}, 400),
        (b'{"query": ["ask \\ud800"], "prompts": ["ask"], "labels": ["\\ud800"]}', 400),
        (labelled(b'{"tests": ' + b"9" * 5000 + b"}"), 400),
    ],
)
def test_an_odd_body_is_refused_and_never_a_failure(body: Any, status: int) -> None:
    found, text = asked(app(), body)
    assert found == status, text
    assert json.loads(text)["error"]["message"]


def test_no_change_of_a_body_makes_it_fail() -> None:
    rng = random.Random(7)
    whole = json.dumps(ASKS).encode()
    pieces = [
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b"null",
        b"\\ud800",
        b"\xff",
        b"1e999",
        b"9" * 30,
        b",",
        b":",
        b"",
    ]

    async def ask() -> None:
        to = app()
        for _ in range(400):
            at, length = rng.randrange(len(whole)), rng.choice([0, 1, 1, 4, 30])
            body = whole[:at] + rng.choice(pieces) + whole[at + length :]
            status, text = await answer(to, body)
            assert status in (200, 400), (body, text)

    asyncio.run(ask())


def test_only_a_post_is_answered() -> None:
    assert asked(app(), method="GET")[0] == 405


def test_bodies_are_decoded_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    read = reward_url.read_message

    def noted(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return read(*args)

    monkeypatch.setattr(reward_url, "read_message", noted)
    assert asked(app())[0] == 200
    assert threads
    assert threading.main_thread() not in threads


def test_a_query_that_fails_stops_the_others() -> None:
    scores = Scores()
    body = {"query": ["ask wait", "ask broken"], "prompts": ["ask"] * 2, "labels": [ADD] * 2}
    assert asked(app(scores=scores), body)[0] == 400
    assert scores.cancelled == 1

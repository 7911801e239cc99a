"""Without tokens, every server only answers requests that name this machine: web pages must not reach it."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from whetstone.core.http.admission import AdmissionLayer
from whetstone.core.http.service_host import RequestLog
from whetstone.core.http.settings import HostLimits


class Host:
    """A service that answers 200."""

    def __init__(self) -> None:
        self.telemetry, self.limits = RequestLog(), HostLimits()
        self.draining, self.held_bytes = False, 0

    def watch(self) -> None:
        return

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Response("a")(scope, receive, send)


def status_of(
    headers: list[tuple[bytes, bytes]], tokens: tuple[str, ...] = (), path: str = "/v1/judge"
) -> int:
    host = Host()
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": b""}
    asyncio.run(AdmissionLayer(host, host, tokens)(scope, receive, send))
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    "name",
    [
        b"evil.example",
        b"evil.example:8080",
        b"127.0.0.1.evil.example",
        b"localhost.evil.example:8080",
        b"evil.example@127.0.0.1.evil.example",
        b"10.0.0.1:8080",
        b"0.0.0.0",
        b"[::2]:8080",
        b"[::1",
        b"[",
        b"",
        b"\xe2\x84\x80",
        b"127.0.0.1, evil.example",
        b"2130706433",
    ],
)
def test_a_request_that_names_another_host_is_refused(name: bytes) -> None:
    assert status_of([(b"host", name)]) == 421
    assert status_of([(b"host", name)], path="/v1/ping") == 200, "monitoring may use any name"
    assert status_of([(b"host", name), (b"authorization", b"Bearer t")], ("t",)) == 200


@pytest.mark.parametrize("name", [b"127.0.0.1", b"127.0.0.1:8080", b"localhost:1", b"LOCALHOST", b"[::1]:80"])
def test_a_request_that_names_this_machine_is_answered(name: bytes) -> None:
    assert status_of([(b"host", name)]) == 200
    assert status_of([(b"host", name), (b"origin", b"http://127.0.0.1")]) == 403


def test_a_client_without_a_name_is_no_browser() -> None:
    assert status_of([]) == 200
    assert status_of([], ("t",)) == 401

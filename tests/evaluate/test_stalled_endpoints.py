"""Servers that stream, stall, trickle and queue: over real sockets, and on a clock that a test moves."""

from __future__ import annotations

import asyncio
import json
import selectors
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluate.test_endpoint_replies import BAD, GOOD, GoodPasses, problems
from whetstone.core.errors import UserError
from whetstone.engine.remote.connection import AnswerBroken, IdleTimeout, IdleWatch, StreamAssembler
from whetstone.engine.remote.request_policy import RetryPolicy
from whetstone.engine.remote.server import RemoteServer
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.endpoint import EndpointWriter
from whetstone.evaluate.replies.settings import EndpointSettings
from whetstone.evaluate.results import Evaluation

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
IMPATIENT = EndpointSettings(concurrency=4, timeout_s=600, silence_s=0.3, retry_s=600, first_wait_s=0.01)
Talk = Callable[[socket.socket, dict[str, Any], int], None]


def event(**choice: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


def streamed(text: str) -> bytes:
    pieces = [event(delta={"content": text[i : i + 5]}) for i in range(0, len(text), 5)]
    usage = b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\n'
    end = event(delta={}, finish_reason="stop")
    return STREAM + b": a comment\n\n" + b"".join(pieces) + end + usage + b"data: [DONE]\n\n"


class Sockets:
    """Accepts connections, reads one request from each, and lets ``talk`` do the rest."""

    def __init__(self, talk: Talk) -> None:
        self.requests: list[dict[str, Any]] = []
        self.over = threading.Event()
        """Set at the end; what stalls waits for it."""
        self._talk = talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self._lock = threading.Lock()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            length = 0
            while (line := file.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            body = json.loads(file.read(length))
            with self._lock:
                before = len(self.requests)
                self.requests.append(body)
            with suppress(OSError):  # the client goes away, as it should
                self._talk(connection, body, before)


@contextmanager
def sockets(talk: Talk) -> Generator[Sockets]:
    server = Sockets(talk)
    thread = threading.Thread(target=server.accept)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def run(
    server: Sockets,
    *names: str,
    settings: EndpointSettings = IMPATIENT,
    on_minute: Callable[..., None] | None = None,
    on_failures: Callable[[str], None] | None = None,
    n: int = 1,
) -> Evaluation:
    section = EnvironmentSection(prompt="{statement}")
    plan = SamplingPlan(n=n, max_tokens=1)
    writer = EndpointWriter(RemoteServer(server.url, "m"), plan, settings)
    environment = SingleTurn(section)
    asked = evaluate(
        problems(*names),
        writer,
        environment,
        GoodPasses(),
        plan,
        on_minute=on_minute,
        on_failures=on_failures,
        minute_s=0.02,
    )
    return asyncio.run(asked)


@pytest.mark.process
def test_a_streamed_reply_is_whole_with_its_tokens() -> None:
    def talk(connection: socket.socket, body: dict[str, Any], before: int) -> None:
        connection.sendall(streamed(GOOD))

    with sockets(talk) as server:
        result = run(server, "a", settings=EndpointSettings(timeout_s=600))
    assert (result.pass_at[1].value, result.shares.mean_tokens) == (1.0, 7)
    assert server.requests[0]["stream"] is True


@pytest.mark.process
@pytest.mark.parametrize("begun", [b"", STREAM, streamed(BAD)[:200]], ids=["no byte", "headers", "a half"])
def test_a_connection_that_stands_open_in_silence_is_given_up_and_the_reply_asked_for_again(
    begun: bytes,
) -> None:
    def talk(connection: socket.socket, body: dict[str, Any], before: int) -> None:
        connection.sendall(begun if before == 0 else streamed(GOOD))
        if before == 0:
            server.over.wait()

    with sockets(talk) as server:
        result = run(server, "a")
    assert (result.pass_at[1].value, result.shares.failed) == (1.0, 0)
    assert len(server.requests) >= 2


@pytest.mark.process
def test_a_server_that_is_always_silent_costs_its_patience_and_says_why() -> None:
    def talk(connection: socket.socket, body: dict[str, Any], before: int) -> None:
        server.over.wait()

    short = EndpointSettings(concurrency=1, timeout_s=600, silence_s=0.2, retry_s=0.2, first_wait_s=0.01)
    with (
        sockets(talk) as server,
        pytest.raises(UserError, match=r"no byte for 0 s \(--silence\), after \d tr"),
    ):
        run(server, "a", settings=short)


@pytest.mark.process
def test_a_reply_that_trickles_for_ever_ends_at_the_whole_limit_and_is_not_asked_for_again() -> None:
    def talk(connection: socket.socket, body: dict[str, Any], before: int) -> None:
        connection.sendall(STREAM)
        while not server.over.wait(0.01):
            connection.sendall(event(delta={"content": "x"}))

    limited = EndpointSettings(concurrency=1, timeout_s=1, silence_s=600, retry_s=600, first_wait_s=0.01)
    with (
        sockets(talk) as server,
        pytest.raises(UserError, match=r"no reply within 1 s \(--request-timeout\)"),
    ):
        run(server, "a", settings=limited)
    assert len(server.requests) <= 1


@pytest.mark.process
@pytest.mark.parametrize(
    "broken",
    [
        streamed(BAD)[:300],
        STREAM + b'data: {"error": {"message": "out of memory"}}\n\n',
        STREAM + b"data: [1\n\n",
    ],
    ids=["cut", "error", "no JSON"],
)
def test_a_stream_that_ends_early_is_no_reply(broken: bytes) -> None:
    def talk(connection: socket.socket, body: dict[str, Any], before: int) -> None:
        connection.sendall(broken if before == 0 else streamed(GOOD))

    with sockets(talk) as server:
        result = run(server, "a", settings=EndpointSettings(timeout_s=600, retry_s=600, first_wait_s=0.01))
    assert result.pass_at[1].value == 1.0
    assert len(server.requests) == 2


@pytest.mark.process
def test_a_server_that_refuses_streams_is_asked_in_one_piece_from_then_on() -> None:
    def talk(connection: socket.socket, body: dict[str, Any], before: int) -> None:
        said: dict[str, Any] = {"choices": [{"message": {"content": GOOD}, "finish_reason": "stop"}]}
        status = b"200 OK"
        if "stream" in body or "stream_options" in body:
            status, said = b"400 Bad Request", {"error": "stream is not supported"}
        data = json.dumps(said).encode()
        connection.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n" % (status, len(data)))
        connection.sendall(b"Connection: close\r\n\r\n" + data)

    one = EndpointSettings(concurrency=1, timeout_s=600, retry_s=600, first_wait_s=0.01)
    with sockets(talk) as server:
        result = run(server, "a", "b", "c", settings=one)
    assert result.pass_at[1].value == 1.0
    assert ["stream" in body for body in server.requests] == [True, False, False, False]


@pytest.mark.process
def test_pending_replies_are_printed_while_none_arrives() -> None:
    heard: list[str] = []
    named = threading.Event()

    def talk(connection: socket.socket, body: dict[str, Any], before: int) -> None:
        if "about b" in str(body):
            named.wait()
        connection.sendall(streamed(GOOD))

    def minute(tally: Any, awaited: str) -> None:
        if tally.samples == 1 and "b reply 0" in awaited:
            heard.append(awaited)
            named.set()

    with sockets(talk) as server:
        patient = EndpointSettings(timeout_s=600, silence_s=600, retry_s=600)
        assert run(server, "a", "b", settings=patient, on_minute=minute).pass_at[1].value == 1.0
    assert f"{server.url}: 1 request open" in heard[0]
    assert "last byte" in heard[0]


@pytest.mark.process
def test_requests_that_a_server_drops_are_reported_while_it_drops_them() -> None:
    heard: list[str] = []
    reported = threading.Event()

    def talk(connection: socket.socket, body: dict[str, Any], before: int) -> None:
        # The server drops every request until the report has come.
        if reported.is_set():
            connection.sendall(streamed(GOOD))

    def failures(text: str) -> None:
        heard.append(text)
        reported.set()

    with sockets(talk) as server:
        patient = EndpointSettings(concurrency=1, timeout_s=600, retry_s=600, first_wait_s=0.2)
        result = run(server, "a", settings=patient, on_minute=lambda *_: None, on_failures=failures)
    assert result.pass_at[1].value == 1.0
    assert heard[0].startswith(f"{server.url}: 1 request failed so far, and are sent again; the last: ")
    assert "without sending a response" in heard[0]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_how_the_bytes_of_a_stream_are_cut_does_not_matter(cuts: list[int]) -> None:
    events = [
        event(delta={"role": "assistant", "reasoning": "hm é"}),
        event(delta={"content": "x = '…'"}),
        event(delta={"content": "\n"}, finish_reason="stop", stop_reason="END"),
    ]
    data = b"".join(events).replace(b"\n\n", b"\r\n\r\n") + b'data: {"usage": {"completion_tokens": 3}}'
    completion, at = StreamAssembler(), 0
    for size in cuts:
        completion.feed(data[at : at + size])
        at += size
    completion.feed(data[at:])
    message = {"role": "assistant", "content": "x = '…'\n", "reasoning": "hm é"}
    choice = {"message": message, "finish_reason": "stop", "stop_reason": "END"}
    assert completion.body() == {"choices": [choice], "usage": {"completion_tokens": 3}}


def test_parts_of_a_streamed_message_are_text_and_thinking() -> None:
    completion = StreamAssembler()
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "x"},
    ]
    completion.feed(event(delta={"content": parts}) + event(delta={"content": " = 1"}, finish_reason="stop"))
    message = {"role": "assistant", "content": "x = 1", "reasoning": "hm"}
    assert completion.body()["choices"] == [{"message": message, "finish_reason": "stop"}]


def test_completions_of_plain_text_are_streamed_as_text() -> None:
    completion = StreamAssembler()
    completion.feed(event(text="a") + event(text="b", finish_reason="length"))
    assert completion.body()["choices"] == [{"text": "ab", "finish_reason": "length"}]
    with pytest.raises(AnswerBroken):
        StreamAssembler().body()


class _Clock(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: _Clock) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing would ever happen"
        self._loop.now += max(timeout, 0.0)
        return super().select(0)


async def _wait(hearing: IdleWatch, more_s: float = 0.0, bytes_at: tuple[float, ...] = ()) -> float:
    """When the silence ends a request whose bytes come at these seconds."""
    loop = asyncio.get_running_loop()
    try:
        async with hearing.watch(more_s) as heard:
            for at in bytes_at:
                await asyncio.sleep(at - loop.time())
                heard()
            await asyncio.sleep(10_000)
    except IdleTimeout:
        return loop.time()
    raise AssertionError("it was not ended")


def _ends(*requests: dict[str, Any]) -> list[float]:
    async def all_of_them() -> list[float]:
        hearing = IdleWatch(10.0)
        return await asyncio.gather(*(_wait(hearing, **each) for each in requests))

    loop = _Clock()
    try:
        return loop.run_until_complete(all_of_them())
    finally:
        loop.close()


def test_silence_is_measured_from_the_last_byte_and_a_queue_that_moves_is_none() -> None:
    assert _ends({}) == [pytest.approx(10)]
    assert _ends({"more_s": 50}) == [pytest.approx(60)]
    assert _ends({"more_s": 50, "bytes_at": (5.0,)}) == [pytest.approx(15)]
    # The second waits its turn while the first talks; once the first is silent, so is the server.
    assert _ends({"bytes_at": (4.0, 12.0, 21.0)}, {}) == [pytest.approx(31), pytest.approx(31)]
    # A request that has begun is not kept alive by others.
    assert _ends({"bytes_at": (4.0, 12.0, 21.0)}, {"bytes_at": (1.0,)})[1] == pytest.approx(11)


def test_patience_begins_with_the_first_failure_not_with_the_last_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("whetstone.engine.remote.request_policy.time.monotonic", lambda: now[0])
    patience = RetryPolicy(300.0, 1.0)
    patience.succeeded()
    now[0] = 5_000.0  # a reply that takes long is no failure of the server
    assert patience.delay_s(1, None) is not None
    now[0] += 299
    assert patience.delay_s(2, None) is not None
    now[0] += 1
    assert patience.delay_s(2, None) is None
    patience.succeeded()
    assert patience.delay_s(2, None) is not None

"""Requests to an OpenAI-compatible endpoint: retries, the time without data, and streamed completions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import httpx2
from msgspec import Struct

from whetstone.core.addresses import may_use_proxy
from whetstone.core.errors import UserError
from whetstone.engine.remote.request_policy import RequestPolicy, RetryPolicy
from whetstone.engine.remote.server import KEY_VARIABLES, RemoteServer, headers

# Statuses that may not occur on a retry: timeouts, conflicts, too many requests, server failures.
RETRYABLE = frozenset({408, 409, 425, 429, *range(500, 600)})

# Statuses that every request would get: a wrong key, a wrong address, an unknown model.
FATAL = frozenset({401, 403, 404})

# Exceptions from reading a body that is not a completion.
MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)

# The most bytes of one answer: far above any reply, as a limit for servers that never stop.
MOST_BYTES = 1 << 28

_TEXTS = ("content", "reasoning", "reasoning_content")
_LAST = ("finish_reason", "stop_reason", "matched_stop")

_CONNECT_S = 30.0
# A server without streaming is silent until its reply is complete, so its timeout grows with the reply.
SLOWEST_TOKENS_PER_S = 10.0

T = TypeVar("T")


class RequestFailed(Exception):
    """A single request that was refused or given up; the message has the last error."""


class _Response(Struct, frozen=True):
    """A status, headers, and the body; a streamed body is in the form of one without streaming."""

    status: int
    data: bytes
    streamed: dict[str, Any] | None
    retry_after_s: float | None

    def value(self) -> Any:
        """Return the body as JSON, None if it is empty. Raises ValueError for invalid JSON, and AnswerBroken
        for an error in place of a completion."""
        if self.streamed is not None:
            return self.streamed
        value = json.loads(self.data) if self.data.strip() else None
        # Routers answer 200 before they know that the server behind them fails.
        if isinstance(value, dict) and (error := cast("dict[str, Any]", value).get("error")):
            raise AnswerBroken(f"an error in the answer: {json.dumps(error)[:300]}")
        return value

    def error_text(self) -> str:
        """Return status and body in one line."""
        text = " ".join(self.data.decode(errors="replace").split())
        return f"{self.status} {text[:300]}".strip()


class AnswerBroken(Exception):
    """An answer that ended early or contains an error; the message says which."""


class StreamAssembler:
    """Takes the bytes of a stream, and returns the body of an equivalent answer without streaming.

    The events are those of OpenAI's API (server-sent, each a JSON object with parts of a choice), with the
    extensions of vLLM, SGLang and llama.cpp. Only the first choice is read, because a request asks for one
    reply.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._texts: dict[str, list[str]] = {}
        self._choice: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Process the next bytes. Raises AnswerBroken for an error of the server, ValueError for invalid
        JSON."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            field, _, value = line.strip().partition(b":")
            if field == b"data":
                self._add_event(value.strip())

    def body(self) -> dict[str, Any]:
        """Return the completion after the stream has ended. Raises AnswerBroken if the end is missing."""
        if self._rest:
            self.feed(b"\n")
        if not self._ended:
            raise AnswerBroken("the stream of a reply ended before the reply did")
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        choice = dict(self._choice)
        if "text" in texts:
            choice["text"] = texts.pop("text")
        else:
            choice["message"] = {"role": "assistant", "content": None, **texts}
        return {"choices": [choice], "usage": self._usage}

    def _add_event(self, value: bytes) -> None:
        if value == b"[DONE]":
            return
        event = json.loads(value)
        if not isinstance(event, dict):
            raise ValueError("an event that is not an object")
        event = cast("dict[str, Any]", event)
        if event.get("error"):
            raise AnswerBroken(f"an error in the stream: {json.dumps(event['error'])[:300]}")
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        for choice in event.get("choices") or ():
            if choice.get("index", 0) == 0:
                delta = dict(choice.get("delta") or {})
                if isinstance(delta.get("content"), list):
                    delta["content"], delta["reasoning"] = texts_of(delta["content"])
                pieces = {"text": choice.get("text"), **{name: delta.get(name) for name in _TEXTS}}
                for name, piece in pieces.items():
                    if isinstance(piece, str):
                        self._texts.setdefault(name, []).append(piece)
                self._choice |= {name: choice[name] for name in _LAST if choice.get(name) is not None}
                self._ended = self._ended or choice.get("finish_reason") is not None


def texts_of(content: Any) -> tuple[str, str]:
    """Return the text and the thinking in a message's content: a text, nothing, or parts of these kinds."""
    if not isinstance(content, list):
        return content or "", ""
    text, thinking = "", ""
    for part in cast("list[Any]", content):
        fields = {"text": part} if isinstance(part, str) else part
        text += fields.get("text") or ""
        thinking += texts_of(fields.get("thinking"))[0]
    return text, thinking


class IdleTimeout(Exception):
    """A request that received no byte for too long; the message says for how long."""


class IdleWatch:
    """Ends requests to one server that receive no data for too long.

    A request with a started answer is idle since its own last byte. Any other request may wait in the
    server's queue, so it is idle since the last byte of any request to this server: a queue that moves is not
    idle. The clock is that of the event loop in which this object is created.
    """

    def __init__(self, limit_s: float, key: str = "--silence") -> None:
        """``key``: the setting of the limit, for messages."""
        self._limit_s = limit_s
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._last_byte = self._loop.time()
        self._open: dict[object, float] = {}
        self.timeouts = 0
        """Number of requests that were ended."""

    @asynccontextmanager
    async def watch(self, more_s: float = 0.0) -> AsyncGenerator[Callable[[], None]]:
        """End the block with IdleTimeout if no byte arrives for the limit. The block calls the yielded
        function for each byte.

        ``more_s`` is added to the limit until the first byte: the time in which a server may compute without
        sending.
        """
        token, start = object(), self._loop.time()
        own_last_byte: float | None = None
        timer: asyncio.TimerHandle | None = None

        def on_byte() -> None:
            nonlocal own_last_byte
            first = own_last_byte is None
            own_last_byte = self._last_byte = self._loop.time()
            if first and timer is not None:
                timer.cancel()
                check()

        def check() -> None:
            nonlocal timer
            until = (
                max(start, self._last_byte) + more_s if own_last_byte is None else own_last_byte
            ) + self._limit_s
            # One timer that is set again is cheaper than one per byte.
            left = until - self._loop.time()
            if left > 0:
                timer = self._loop.call_later(left, check)
            else:
                limit.reschedule(self._loop.time())

        self._open[token] = start
        limit = asyncio.timeout(None)
        try:
            async with limit:
                check()
                yield on_byte
        except TimeoutError:
            if not limit.expired():
                raise
            self.timeouts += 1
            allowed = self._limit_s + (more_s if own_last_byte is None else 0.0)
            raise IdleTimeout(f"no byte for {allowed:.0f} s ({self._key})") from None
        finally:
            del self._open[token]
            if timer is not None:
                timer.cancel()

    def describe(self) -> str:
        """Describe the open requests and their idle time; empty if none is open."""
        if not self._open:
            return ""
        now = self._loop.time()
        requests = f"{len(self._open)} request{'s' * (len(self._open) > 1)} open"
        oldest = f"the oldest for {now - min(self._open.values()):.0f} s"
        again = f", {self.timeouts} timed out so far" if self.timeouts else ""
        return f"{requests}, {oldest}, last byte {now - self._last_byte:.0f} s ago{again}"


class EndpointConnection:
    """Requests to one server over the connections of an :func:`http_client`."""

    def __init__(self, client: httpx2.AsyncClient, server: RemoteServer, policy: RequestPolicy) -> None:
        self._client = client
        self._server = server
        self._policy = policy
        self._timeout_s = policy.timeout_s
        self._retries = RetryPolicy(policy.retry_s, policy.first_wait_s)
        self._idle_watch = IdleWatch(policy.silence_s, policy.silence_key)
        self._failures, self._last_failure = 0, ""
        self._streams: bool | None = None
        """Whether the server supports streaming; None before its first answer."""

    async def get(self, path: str, read: Callable[[Any], T]) -> T:
        """Send a GET request, like ``post``."""
        return await self.post(path, None, read)

    async def post(self, path: str, body: dict[str, Any] | None, read: Callable[[Any], T]) -> T:
        """Return ``read`` of the answer's JSON, with retries.

        With ``stream`` in the body, ``read`` gets the assembled completion. An answer that ``read`` cannot
        parse (KeyError and similar) counts as a failed try. Raises RequestFailed if this request is given up,
        UserError for errors that every request would get.
        """
        tries = 0
        while True:
            tries += 1
            problem, retry_after_s = "", None
            try:
                answer = await self._request(path, body)
                if 200 <= answer.status < 300:
                    result = read(answer.value())
                    self._retries.succeeded()
                    return result
                problem, retry_after_s = answer.error_text(), answer.retry_after_s
                if answer.status in FATAL:
                    raise UserError(
                        f"{self._server.url}: {problem}; check the address, the model and {KEY_VARIABLES[0]}"
                    )
                if answer.status not in RETRYABLE:
                    raise RequestFailed(problem)
            except (IdleTimeout, AnswerBroken) as error:
                problem = str(error)
            except httpx2.TransportError as error:
                problem = f"{type(error).__name__}: {error}".rstrip(": ")
            except MALFORMED as error:
                problem = f"an answer that is not a completion ({type(error).__name__}: {error})"
            self._failures, self._last_failure = self._failures + 1, problem
            wait_s = self._retries.delay_s(tries, retry_after_s)
            if wait_s is None:
                raise RequestFailed(f"{problem}, after {tries} {'tries' if tries > 1 else 'try'}")
            await asyncio.sleep(wait_s)

    def describe_wait(self) -> str:
        """Describe what the open requests wait for; empty if none is open."""
        idle = self._idle_watch.describe()
        return idle and f"{self._server.url}: {idle}"

    def describe_failures(self) -> str:
        """Describe the tries that failed and do not end the request; empty if there were none."""
        if not self._failures:
            return ""
        tries = f"{self._failures} request{'s' * (self._failures > 1)}"
        return (
            f"{self._server.url}: {tries} failed so far, and are sent again; the last: {self._last_failure}"
        )

    async def _request(self, path: str, body: dict[str, Any] | None) -> _Response:
        """Try once, without streaming if the server does not support it."""
        if body is None or not body.get("stream") or self._streams is False:
            return await self._send(path, body and _without_stream(body))
        answer = await self._send(path, body)
        # Servers without streaming reject the field, and name it in their error.
        if self._streams is None and answer.status >= 400 and "stream" in answer.error_text():
            answer = await self._send(path, _without_stream(body))
        if 200 <= answer.status < 300:
            self._streams = answer.streamed is not None
        return answer

    async def _send(self, path: str, body: dict[str, Any] | None) -> _Response:
        """Send one request. Raises RequestFailed if the whole answer takes too long, and IdleTimeout without
        data."""
        asked = body or {}
        extra_s = 0.0 if asked.get("stream") and self._streams else _max_tokens(asked) / SLOWEST_TOKENS_PER_S
        whole = asyncio.timeout(self._timeout_s)
        try:
            async with whole, self._idle_watch.watch(extra_s) as on_byte:
                return await self._read(path, body, on_byte)
        except TimeoutError:
            if whole.expired():
                # No retry: with the same seed the reply would be as long.
                raise RequestFailed(
                    f"no reply within {self._timeout_s:.0f} s ({self._policy.timeout_key})"
                ) from None
            raise

    async def _read(self, path: str, body: dict[str, Any] | None, on_byte: Callable[[], None]) -> _Response:
        method = "GET" if body is None else "POST"
        async with self._client.stream(method, f"{self._server.url}/{path}", json=body) as answer:
            on_byte()
            kind = answer.headers.get("content-type", "")
            completion = (
                StreamAssembler() if answer.is_success and kind.startswith("text/event-stream") else None
            )
            held, size = list[bytes](), 0
            async for data in answer.aiter_bytes():
                on_byte()
                size += len(data)
                if size > MOST_BYTES:
                    raise RequestFailed(f"the answer is longer than {MOST_BYTES >> 20} MB")
                if completion is None:
                    held.append(data)
                else:
                    completion.feed(data)
            streamed = completion.body() if completion else None
            return _Response(answer.status_code, b"".join(held), streamed, _retry_after(answer))


def http_client(server: RemoteServer, policy: RequestPolicy) -> httpx2.AsyncClient:
    """Return a client for the requests to one server."""
    limits = httpx2.Limits(max_connections=policy.concurrency)
    # IdleWatch limits the time without data, so httpx only limits the connection.
    timeout = httpx2.Timeout(None, connect=_CONNECT_S)
    proxy = may_use_proxy(server.url)
    return httpx2.AsyncClient(headers=headers(), limits=limits, timeout=timeout, trust_env=proxy)


def _without_stream(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in {"stream", "stream_options"}}


def _max_tokens(body: dict[str, Any]) -> float:
    """Return the longest reply that the request allows, in tokens."""
    most = body.get("max_tokens")
    return float(most) if isinstance(most, int | float) else 0.0


def _retry_after(answer: httpx2.Response) -> float | None:
    try:
        return float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None

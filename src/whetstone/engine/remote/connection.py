"""Requests to an OpenAI-compatible endpoint, made again while there is hope."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
from msgspec import Struct

from whetstone.engine.remote.completion import MOST_BYTES, Completion, StreamBroken
from whetstone.engine.remote.patience import Patience
from whetstone.engine.remote.server import KEY_VARIABLES, Server, headers
from whetstone.engine.remote.silence import Hearing, Silent
from whetstone.errors import UserError

_PASSING = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses that a later try may not meet: time-outs, conflicts, too many requests, failures of the server."""

_OF_ALL = frozenset({401, 403, 404})
"""Statuses that every request would meet: a wrong key, a wrong address, an unknown model."""

_OTHER_FORM = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)
"""What reading a body raises that is no completion."""

_CONNECT_S = 30.0
SLOWEST_TOKENS_PER_S = 10.0
"""A server that does not stream says no word until its reply is whole, and is given the time for it."""

T = TypeVar("T")


class RequestFailed(Exception):
    """A single request that was refused or given up; the message says what came last."""


class Manners(Struct, frozen=True):
    """How a server is asked.

    concurrency: requests at once. timeout_s: for one request from its start to the last byte.
    silence_s: without a byte (see ``Hearing``); of a server that does not stream, on top of what
    ``max_tokens`` take at ``SLOWEST_TOKENS_PER_S``. patience_s, first_wait_s: see Patience. timeout_key,
    silence_key: what a person sets them by, for messages.
    """

    concurrency: int = 32
    timeout_s: float = 7200.0
    silence_s: float = 300.0
    patience_s: float = 300.0
    first_wait_s: float = 1.0
    timeout_key: str = "--request-timeout"
    silence_key: str = "--silence"


class _Answer(Struct, frozen=True):
    """A status, what came with it, and the body of a stream as that of an answer in one piece."""

    status: int
    data: bytes
    streamed: dict[str, Any] | None
    retry_after_s: float | None

    def value(self) -> Any:
        """The body as JSON, None where there is no body. Raises ValueError where it is something else."""
        if self.streamed is not None:
            return self.streamed
        return json.loads(self.data) if self.data.strip() else None

    def refusal(self) -> str:
        """Status and what the endpoint says, in one line."""
        text = " ".join(self.data.decode(errors="replace").split())
        return f"{self.status} {text[:300]}".strip()


class Connection:
    """Requests to one server over shared sockets. Use :func:`connected`."""

    def __init__(self, client: httpx2.AsyncClient, server: Server, manners: Manners) -> None:
        self._client = client
        self._server = server
        self._manners = manners
        self._timeout_s = manners.timeout_s
        self._patience = Patience(manners.patience_s, manners.first_wait_s)
        self._hearing = Hearing(manners.silence_s, manners.silence_key)
        self._streams: bool | None = None
        """Whether the server streams what it is asked to; None before its first answer."""

    async def get(self, path: str, read: Callable[[Any], T]) -> T:
        """As ``post``, of what is there without asking for anything."""
        return await self.post(path, None, read)

    async def post(self, path: str, body: dict[str, Any] | None, read: Callable[[Any], T]) -> T:
        """``read`` of the answer's JSON, tried again while there is hope.

        With ``stream`` in the body, ``read`` gets what the stream amounts to. An answer over which ``read``
        fails as over a body of another form (KeyError and its like) counts as a failed try. Raises
        RequestFailed when this request is lost, UserError for what every request would meet.
        """
        tries = 0
        while True:
            tries += 1
            said, asked_s = "", None
            try:
                answer = await self._ask(path, body)
                if 200 <= answer.status < 300:
                    result = read(answer.value())
                    self._patience.answered()
                    return result
                said, asked_s = answer.refusal(), answer.retry_after_s
                if answer.status in _OF_ALL:
                    raise UserError(
                        f"{self._server.url}: {said}; check the address, the model and {KEY_VARIABLES[0]}"
                    )
                if answer.status not in _PASSING:
                    raise RequestFailed(said)
            except (Silent, StreamBroken) as error:
                said = str(error)
            except httpx2.TransportError as error:
                said = f"{type(error).__name__}: {error}".rstrip(": ")
            except _OTHER_FORM as error:
                said = f"an answer that is no completion ({type(error).__name__}: {error})"
            wait_s = self._patience.wait_s(tries, asked_s)
            if wait_s is None:
                raise RequestFailed(f"{said}, after {tries} {'tries' if tries > 1 else 'try'}")
            await asyncio.sleep(wait_s)

    def described(self) -> str:
        """What is being waited for, in words; empty where no request is open."""
        said = self._hearing.described()
        return said and f"{self._server.url}: {said}"

    async def _ask(self, path: str, body: dict[str, Any] | None) -> _Answer:
        """One try; without a stream where the server was seen to have none."""
        if body is None or not body.get("stream") or self._streams is False:
            return await self._try(path, body and _in_one_piece(body))
        answer = await self._try(path, body)
        if self._streams is None and answer.status >= 400 and "stream" in answer.refusal():
            answer = await self._try(path, _in_one_piece(body))
        if 200 <= answer.status < 300:
            self._streams = answer.streamed is not None
        return answer

    async def _try(self, path: str, body: dict[str, Any] | None) -> _Answer:
        """Raises RequestFailed where an answer that comes takes too long, and Silent where none comes."""
        asked = body or {}
        wordless = 0.0 if asked.get("stream") and self._streams else _tokens(asked) / SLOWEST_TOKENS_PER_S
        whole = asyncio.timeout(self._timeout_s)
        try:
            async with whole, self._hearing.limited(wordless) as heard:
                return await self._read(path, body, heard)
        except TimeoutError:
            if whole.expired():
                # The next try would be as long: the seed is the same.
                raise RequestFailed(
                    f"no reply within {self._timeout_s:.0f} s ({self._manners.timeout_key})"
                ) from None
            raise

    async def _read(self, path: str, body: dict[str, Any] | None, heard: Callable[[], None]) -> _Answer:
        method = "GET" if body is None else "POST"
        async with self._client.stream(method, f"{self._server.url}/{path}", json=body) as answer:
            heard()
            kind = answer.headers.get("content-type", "")
            completion = Completion() if answer.is_success and kind.startswith("text/event-stream") else None
            held, size = list[bytes](), 0
            async for data in answer.aiter_bytes():
                heard()
                size += len(data)
                if size > MOST_BYTES:
                    raise RequestFailed(f"an answer of more than {MOST_BYTES >> 20} MB")
                if completion is None:
                    held.append(data)
                else:
                    completion.feed(data)
            streamed = completion.body() if completion else None
            return _Answer(answer.status_code, b"".join(held), streamed, _retry_after(answer))


@asynccontextmanager
async def connected(server: Server, manners: Manners) -> AsyncGenerator[Connection]:
    """A connection to ``server`` for as long as the block lasts."""
    limits = httpx2.Limits(max_connections=manners.concurrency)
    timeout = httpx2.Timeout(None, connect=_CONNECT_S)  # for the rest, see Hearing
    async with httpx2.AsyncClient(headers=headers(), limits=limits, timeout=timeout) as client:
        yield Connection(client, server, manners)


def _in_one_piece(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in {"stream", "stream_options"}}


def _tokens(body: dict[str, Any]) -> float:
    """The longest reply that the request allows."""
    most = body.get("max_tokens")
    return float(most) if isinstance(most, int | float) else 0.0


def _retry_after(answer: httpx2.Response) -> float | None:
    try:
        return float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None

"""Requests to an OpenAI-compatible endpoint, made again while there is hope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
from msgspec import Struct

from whetstone.engine.remote.patience import Patience
from whetstone.engine.remote.server import KEY_VARIABLES, Server, headers
from whetstone.errors import UserError

_PASSING = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses that a later try may not meet: time-outs, conflicts, too many requests, failures of the server."""

_OF_ALL = frozenset({401, 403, 404})
"""Statuses that every request would meet: a wrong key, a wrong address, an unknown model."""

_CONNECT_S = 30.0

T = TypeVar("T")


class RequestFailed(Exception):
    """A single request that was refused or given up; the message says what came last."""


class Manners(Struct, frozen=True):
    """How a server is asked.

    concurrency: requests at once. timeout_s: for one request from its start to the last byte.
    patience_s, first_wait_s: see Patience.
    """

    concurrency: int = 32
    timeout_s: float = 1800.0
    patience_s: float = 300.0
    first_wait_s: float = 1.0


class Connection:
    """Requests to one server over shared sockets. Use :func:`connected`."""

    def __init__(self, client: httpx2.AsyncClient, server: Server, manners: Manners) -> None:
        self._client = client
        self._server = server
        self._timeout_s = manners.timeout_s
        self._patience = Patience(manners.patience_s, manners.first_wait_s)

    async def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """``read`` of the answer's JSON, tried again while there is hope.

        An answer over which ``read`` fails as over a body of another form (KeyError and its like) counts as
        a failed try. Raises RequestFailed when this request is lost, UserError for what every request
        would meet.
        """
        tries = 0
        while True:
            tries += 1
            said, asked_s = "", None
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await self._client.post(f"{self._server.url}/{path}", json=body)
                if answer.is_success:
                    result = read(answer.json())
                    self._patience.answered()
                    return result
                said, asked_s = _refusal(answer), _retry_after(answer)
                if answer.status_code in _OF_ALL:
                    raise UserError(
                        f"{self._server.url}: {said}; check the address, the model and {KEY_VARIABLES[0]}"
                    )
                if answer.status_code not in _PASSING:
                    raise RequestFailed(said)
            except (httpx2.TransportError, TimeoutError) as error:
                said = f"{type(error).__name__}: {error}".rstrip(": ")
            except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
                said = f"an answer that is no completion ({type(error).__name__}: {error})"
            wait_s = self._patience.wait_s(tries, asked_s)
            if wait_s is None:
                raise RequestFailed(f"{said}, after {tries} {'tries' if tries > 1 else 'try'}")
            await asyncio.sleep(wait_s)


@asynccontextmanager
async def connected(server: Server, manners: Manners) -> AsyncGenerator[Connection]:
    """A connection to ``server`` for as long as the block lasts."""
    limits = httpx2.Limits(max_connections=manners.concurrency)
    timeout = httpx2.Timeout(manners.timeout_s, connect=_CONNECT_S)
    async with httpx2.AsyncClient(headers=headers(), limits=limits, timeout=timeout) as client:
        yield Connection(client, server, manners)


def _refusal(answer: httpx2.Response) -> str:
    """Status and what the endpoint says, in one line."""
    text = " ".join(answer.text.split())
    return f"{answer.status_code} {text[:300]}".strip()


def _retry_after(answer: httpx2.Response) -> float | None:
    try:
        return float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None

"""The connections of a client to one server: so many at most, kept while they are used."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

import httpx2

from whetstone.judge_service.connection import Answer, Broken, Connection, Place

_MOST = 256
_KEPT_IDLE_S = 60.0
_CONNECT_S = 20.0


class Connections:
    """Requests to the server at ``url``, on one event loop."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """``headers`` go with every request."""
        parts = urlsplit(url)
        tls = httpx2.create_ssl_context(trust_env=False) if parts.scheme == "https" else None
        self._place = Place(parts.hostname or "", parts.port or (443 if tls else 80), tls)
        lines = {"Host": parts.netloc.rpartition("@")[2], **_signed(parts), **headers}
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._room = asyncio.Semaphore(_MOST)
        self._idle: deque[Connection] = deque()
        """In the order in which they were used."""
        self._open: set[Connection] = set()

    async def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> Answer:
        """The answer to a request with a ``body`` of this ``kind``. Raises Broken.

        Cancelled, it hangs up, which stops what was asked for. What a kept connection that had been closed
        meanwhile did not carry is sent again on a new one, so it may be asked twice.
        """
        lines = f"{method} {path} HTTP/1.1\r\n{self._lines}"
        if body is not None:
            lines += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        data = f"{lines}\r\n".encode("latin-1") + (body or b"")
        async with self._room:
            kept = self._kept()
            if kept is not None:
                try:
                    return await self._asked(kept, data)
                except Broken as broken:
                    if broken.begun:
                        raise
                    self._let_go(*self._idle)  # they are older still
            return await self._asked(await self._new(), data)

    async def _asked(self, connection: Connection, data: bytes) -> Answer:
        try:
            answer = await connection.ask(data)
        finally:
            if not connection.usable:
                self._let_go(connection)
        if connection.usable:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        return answer

    async def _new(self) -> Connection:
        try:
            async with asyncio.timeout(_CONNECT_S):
                connection = await Connection.to(self._place)
        except TimeoutError:
            raise Broken(f"no connection within {_CONNECT_S:.0f} s", begun=False) from None
        except OSError as error:
            raise Broken(str(error) or type(error).__name__, begun=False) from None
        self._open.add(connection)
        return connection

    def _kept(self) -> Connection | None:
        """The one that was used last; those that nobody used for long are let go."""
        oldest = time.monotonic() - _KEPT_IDLE_S
        while self._idle and self._idle[0].idle_since < oldest:
            self._let_go(self._idle.popleft())
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
            self._let_go(connection)
        return None

    def _let_go(self, *connections: Connection) -> None:
        for connection in connections:
            connection.hang_up()
            self._open.discard(connection)

    def close(self) -> None:
        """Hang up. What is still awaited is broken."""
        self._let_go(*self._open)


def _signed(parts: SplitResult) -> dict[str, str]:
    """The header that user and password of a URL make."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}

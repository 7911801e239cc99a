"""A limit on the time in which the head of a request arrives. (Its size is limited by h11.)"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from whetstone.core.http.refusal import RequestRefused, as_json
from whetstone.core.http.service_host import HostTelemetry

_NO_ADDRESS = ("", 0)


class HeadTimeout:
    """An ASGI application that wraps another one, and the protocol class of its connections.

    The time counts from the start of a connection, and after a response from the first byte on. (The idle
    time of a connection between requests is limited by uvicorn.) The application is called when a head is
    complete, so no state of uvicorn's protocol is needed.
    """

    def __init__(self, app: ASGIApp, head_s: float, telemetry: HostTelemetry) -> None:
        self._app, self.head_s, self.telemetry = app, head_s, telemetry
        self.connections: dict[tuple[str, int], _Connection] = {}
        """By the address of the client."""

    @property
    def protocol_class(self) -> type[asyncio.Protocol]:
        """The protocol class for uvicorn."""

        def connection(**settings: Any) -> asyncio.Protocol:
            return _Connection(self, H11Protocol(**settings))

        return cast("type[asyncio.Protocol]", connection)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, whose head is complete."""
        connection = self.connections.get(scope.get("client") or _NO_ADDRESS)
        if connection is None:
            await self._app(scope, receive, send)
            return
        connection.expect_head(False)
        try:
            await self._app(scope, receive, send)
        finally:
            connection.expect_head(True)


class _Connection(asyncio.Protocol):
    """A connection to uvicorn's protocol ``http``, with a timer while the head of a request is incomplete."""

    def __init__(self, heads: HeadTimeout, http: asyncio.Protocol) -> None:
        self._heads, self._http = heads, http
        self._expects_head, self._begun = True, False
        self._timer: asyncio.TimerHandle | None = None
        # Uvicorn's flow control.
        self.pause_writing, self.resume_writing = http.pause_writing, http.resume_writing
        self.eof_received = http.eof_received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer. asyncio calls this and the next two methods."""
        self._transport = cast("asyncio.Transport", transport)
        # A client that is gone already has no address.
        host, port = (transport.get_extra_info("peername") or _NO_ADDRESS)[:2]
        self._client = str(host), int(port)
        self._heads.connections[self._client] = self
        self._start_timer()
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on the data. A head that arrives at once, as most do, needs no timer after the first one."""
        if self._expects_head:
            self._begun = True
            self._start_timer()
        self._http.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self.expect_head(False)
        if self._heads.connections.get(self._client) is self:
            del self._heads.connections[self._client]
        self._http.connection_lost(exc)

    def expect_head(self, expects: bool) -> None:
        """Set whether the head of a request comes next. The timer starts with its first byte."""
        self._expects_head, self._begun = expects, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._heads.head_s, self._on_timeout)

    def _on_timeout(self) -> None:
        head_s = self._heads.head_s
        refused = RequestRefused(
            408, "slow_head", f"the head of the request was not complete after {head_s:g} s"
        )
        body = as_json(refused.reply())
        head = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n"
        if self._begun:  # a client that sent nothing gets no response
            self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self._transport.close()
        self._heads.telemetry.answered("none", 408, head_s, client=self._client[0], error=refused.code)

"""One connection of HTTP/1.1 to a server, kept from request to request.

A general client (httpx2) takes 0.7 ms of CPU for a request, half of what judging a small program takes. This
one can only what a judge's client needs, with the parser that the server has as well.
"""

from __future__ import annotations

import asyncio
import socket
from ssl import SSLContext

import httptools
from msgspec import Struct

# A machine that is gone says nothing: after about a minute its connections count as broken.
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Broken(Exception):
    """The connection ended, or what came is no HTTP. ``begun``: something of the answer had come."""

    def __init__(self, why: str, *, begun: bool) -> None:
        super().__init__(why)
        self.begun = begun


class Answer(Struct):
    """What a server said."""

    status: int
    headers: dict[str, str]
    """By their names in lower case; of several of one name the last."""
    content: bytes


class Place(Struct, frozen=True):
    """Where a server listens; ``tls`` for https."""

    host: str
    port: int
    tls: SSLContext | None


class Connection(asyncio.Protocol):
    """See the module's text. One request at a time; one event loop."""

    def __init__(self) -> None:
        self.usable = True
        """Whether another request may be sent: the server has not hung up, nor said that it will."""
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._begun = False
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []

    @classmethod
    async def to(cls, place: Place) -> Connection:
        """A new connection. Raises OSError; cancelled, it leaves nothing open."""
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(cls, place.host, place.port, ssl=place.tls)
        for option in _KEEP_ALIVE:
            transport.get_extra_info("socket").setsockopt(*option)
        return connection

    async def ask(self, data: bytes) -> Answer:
        """The answer to a request. Raises Broken; cancelled, it hangs up, which stops what was asked for."""
        if self._transport is None or not self.usable:
            raise Broken("the server hung up", begun=False)
        self._begun, self._headers, self._parts = False, {}, []
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        try:
            return await self._waiting
        except asyncio.CancelledError:
            self.hang_up()
            raise
        finally:
            self._waiting = None

    def hang_up(self) -> None:
        """Let go of the server at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"what it answers is no HTTP: {error}")
            self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._end(str(exc) if exc else "the server hung up")

    def _end(self, why: str) -> None:
        self.usable = False
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Broken(why, begun=self._begun))

    def on_message_begin(self) -> None:
        """Called by the parser, as are those below."""
        self._begun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole, or one that says that it will come."""
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = {}
            return
        if not self._parser.should_keep_alive():
            self.usable = False
        if self._waiting is None or self._waiting.done():
            self.hang_up()  # an answer that nobody asked for
            return
        self._waiting.set_result(Answer(status, self._headers, b"".join(self._parts)))

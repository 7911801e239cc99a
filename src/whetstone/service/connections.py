"""HTTP connections of a judge client to one server, reused for later requests."""

from __future__ import annotations

import io
import socket
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import install_command

try:
    import aiohttp
except ModuleNotFoundError:
    raise UserError(f"a judge on servers needs aiohttp; {install_command('serve')}") from None

_MOST = 256
# Less than the server's own limit on idle connections, which would close them.
_KEPT_IDLE_S = 60.0
_CONNECT_S = 20.0
# A lost machine sends nothing. Keep-alive ends an idle connection after about a minute. With unacknowledged
# data the kernel retransmits for a quarter of an hour instead, so that time is bounded as well.
_KEEP_ALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 40_000),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
# Before these errors, the server has not got the request.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class Broken(Exception):
    """The connection ended, or the response is not HTTP. ``sends``: on how many connections the request was
    sent."""

    def __init__(self, why: str, *, sends: int) -> None:
        super().__init__(why)
        self.sends = sends


class HttpResponse(Struct):
    """The response of a server. The names of headers ignore case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


async def _mark_reused(_session: aiohttp.ClientSession, context: Any, _parameters: Any) -> None:
    """Note that a request goes over a kept connection; aiohttp calls this."""
    context.trace_request_ctx["reused"] = True


class Connections:
    """A pool of connections to the server at ``url``, on one event loop."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """``headers`` are sent with every request."""
        parts = urlsplit(url)
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._tls = httpx2.create_ssl_context(trust_env=False) if parts.scheme == "https" else True
        self._headers = dict(headers)
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers.setdefault("Authorization", f"Basic {b64encode(pair.encode()).decode()}")
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> HttpResponse:
        """Return the response to a request with a ``body`` of content type ``kind``. Raises Broken.

        If cancelled, it disconnects, which stops the program. If a reused connection breaks before a
        response, the request is sent again on a new one, so it may run twice.
        """
        if self._closed:
            raise Broken("the client no longer uses this server", sends=0)
        # A session belongs to the event loop on which it is opened.
        self._session = self._session or self._open(_MOST)
        headers = {} if body is None else {"Content-Type": kind}
        trace: dict[str, bool] = {}
        try:
            return await _response(self._session, method, f"{self._url}{path}", body, headers, trace)
        except aiohttp.ClientError as error:
            # ClientPayloadError: a part of the response had arrived.
            if "reused" not in trace or isinstance(error, aiohttp.ClientPayloadError) or self._closed:
                raise _broken(error, 0) from None
        try:
            # The other kept connections are as old, so the server has probably closed them too.
            async with self._open(1) as session:
                return await _response(session, method, f"{self._url}{path}", body, headers, trace)
        except aiohttp.ClientError as error:
            raise _broken(error, 1) from None

    def _open(self, most: int) -> aiohttp.ClientSession:
        traces = aiohttp.TraceConfig()
        traces.on_connection_reuseconn.append(_mark_reused)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=most, keepalive_timeout=_KEPT_IDLE_S, ssl=self._tls, socket_factory=_socket
            ),
            headers=self._headers,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
            cookie_jar=aiohttp.DummyCookieJar(),
            # The caller bounds the time of a response.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            trace_configs=[traces],
        )

    async def close(self) -> None:
        """Close all connections. Pending requests raise Broken."""
        self._closed = True
        if self._session is not None:
            await self._session.close()


async def _response(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    trace: dict[str, bool],
) -> HttpResponse:
    # A file, because aiohttp warns about long bodies that are bytes.
    data = None if body is None else io.BytesIO(body)
    async with session.request(
        method, url, data=data, headers=headers, trace_request_ctx=trace, allow_redirects=False
    ) as answer:
        return HttpResponse(answer.status, answer.headers, await answer.read())


def _broken(error: aiohttp.ClientError, sends: int) -> Broken:
    """Return the error of a request that was sent ``sends`` times before."""
    return Broken(str(error) or type(error).__name__, sends=sends + (not isinstance(error, _NOT_SENT)))


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket for an address of ``getaddrinfo``, with keep-alive."""
    family, kind, protocol = address[:3]
    opened = socket.socket(family, kind, protocol)
    for option in _KEEP_ALIVE:
        opened.setsockopt(*option)
    return opened

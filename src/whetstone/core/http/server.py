"""A uvicorn server that finishes running requests before it ends, and its listening socket.

The time in which the head of a request arrives is limited. (Its size is limited by h11.)
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Generator
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from whetstone.core.errors import UserError
from whetstone.core.http.refusal import RequestRefused, as_json
from whetstone.core.http.service_host import HostTelemetry, ServiceHost
from whetstone.core.http.settings import Address

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


_KEEP_ALIVE_S = 75
_BACKLOG = 4096
# For the answers to requests that came while the server drained.
_LATE_REQUESTS_S = 5
_SEND_BUFFER_BYTES = 256 << 10


def server(app: ASGIApp, host: ServiceHost) -> uvicorn.Server:
    """Return the server of ``app``. It drains at the first SIGTERM or SIGINT, and ends at the second."""
    return _Server(_config(app, host), host)


def embedded_server(app: ASGIApp, host: ServiceHost) -> uvicorn.Server:
    """Return a server of ``app`` for an event loop with other work. It handles no signals, and ends soon
    after ``should_exit`` is set."""
    config = _config(app, host)
    config.timeout_graceful_shutdown = 1
    return _EmbeddedServer(config)


def _config(app: ASGIApp, host: ServiceHost) -> uvicorn.Config:
    limits = host.limits
    heads = HeadTimeout(app, limits.head_s, host.telemetry)
    return uvicorn.Config(
        heads,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=heads.protocol_class,
        h11_max_incomplete_event_size=limits.most_head_bytes,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )


class _EmbeddedServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave all signals to the process."""
        yield


class _Server(uvicorn.Server):
    """A uvicorn server that tells the service when it drains, and restores the signal handlers."""

    def __init__(self, config: uvicorn.Config, service: ServiceHost) -> None:
        super().__init__(config)
        self._service = service
        self._drain: asyncio.Future[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Drain at the first signal, end at the second."""
        loop = asyncio.get_running_loop()
        self._service.watch()
        if threading.current_thread() is not threading.main_thread():
            yield  # in an actor: only the main thread receives signals
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            # Handlers of the loop and not of `signal`: the draining is a task of the loop.
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        name, second = signal.Signals(number).name, self._service.draining
        self._service.telemetry.say("ending_now" if second else "draining", signal=name)
        self._service.draining = True
        if second:
            self.force_exit = self.should_exit = True
        else:
            self._drain = asyncio.ensure_future(self._end_after_requests(set(self.server_state.tasks)))

    async def _end_after_requests(self, running: set[asyncio.Task[None]]) -> None:
        """Stop listening when the running requests are answered, or ``drain_s`` is over.

        Until then connections are accepted, and clients are told to retry later or elsewhere.
        """
        # Requests that arrive while the server drains are refused at once, so only these can take long.
        if running:
            await asyncio.wait(running, timeout=self._service.limits.drain_s)
        self.config.timeout_graceful_shutdown = (
            0 if any(not task.done() for task in running) else _LATE_REQUESTS_S
        )
        self.should_exit = True


def listen(address: Address) -> socket.socket:
    """Return a listening socket at ``address``. Raises UserError if that is impossible."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off (40 ms delay per response) only if the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A client that does not read can fill this buffer in the kernel. Without a limit it grows to
        # megabytes.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listening.bind((address.host, address.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise UserError(
            f"cannot listen on {address.host}:{address.port} ({error.strerror}); use another --host or --port"
        ) from None
    return listening

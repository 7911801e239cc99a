"""A uvicorn server that finishes running requests before it ends, and its listening socket."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from whetstone.core.errors import UserError
from whetstone.core.http.head_timeout import HeadTimeout
from whetstone.core.http.service_host import ServiceHost
from whetstone.core.http.settings import Address

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

"""The judge behind a socket, until it is told to end: what runs is then finished, and nothing new begun."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator, Mapping, Sequence

import uvicorn
from starlette.types import ASGIApp

from whetstone.errors import UserError
from whetstone.judge import Judge
from whetstone.judge_service.app import build_app
from whetstone.judge_service.cluster.judge import ClusterJudge
from whetstone.judge_service.datasets import Datasets
from whetstone.judge_service.heads import protocol_with
from whetstone.judge_service.host import Host
from whetstone.judge_service.service import Service
from whetstone.judge_service.settings import Address, Limits
from whetstone.judge_service.telemetry import Telemetry
from whetstone.problem import Problem

_KEEP_ALIVE_S = 75
_BACKLOG = 4096
_LAST_S = 5
"""For the answers to requests that came while the server drained."""
_SEND_BUFFER_BYTES = 256 << 10


def serve(
    address: Address,
    judge: Judge | ClusterJudge,
    workers: int,
    limits: Limits,
    *,
    environment: str | None = None,
    datasets: Mapping[str, Sequence[Problem]] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain. A second one ends at once. ``judge`` stays the caller's.

    ``workers`` and ``environment`` are the judge's; ``datasets`` are problems that can be named.
    Raises UserError for an address that cannot be had.
    """
    address.check()
    telemetry = Telemetry()
    service = Service(judge, workers, limits, telemetry, environment, Datasets(datasets or {}))
    listening = listen(address)
    host, port = listening.getsockname()[:2]
    app = build_app(service, address.tokens)
    about = {"workers": workers, "isolation": judge.isolation, "tokens": len(address.tokens)}
    telemetry.say("listening", host=host, port=port, **about)
    try:
        asyncio.run(server(app, service).serve([listening]))
    finally:
        listening.close()
        service.close()
        telemetry.say("ended")


def server(app: ASGIApp, host: Host) -> uvicorn.Server:
    """The server of ``app``, which drains at the first SIGTERM or SIGINT, and ends at the second."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=protocol_with(host.limits, host.telemetry),
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    return _Server(config, host)


class _Server(uvicorn.Server):
    """uvicorn's server, which tells the service that it ends, and leaves the signals as they were."""

    def __init__(self, config: uvicorn.Config, service: Host) -> None:
        super().__init__(config)
        self._service = service
        self._drain: asyncio.Future[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Drain at the first signal, end at the second."""
        loop = asyncio.get_running_loop()
        self._service.watch()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_end, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _asked_to_end(self, number: int) -> None:
        name, again = signal.Signals(number).name, self._service.draining
        self._service.telemetry.say("ending_now" if again else "draining", signal=name)
        self._service.draining = True
        if again:
            self.force_exit = self.should_exit = True
        else:
            self._drain = asyncio.ensure_future(self._end_after(set(self.server_state.tasks)))

    async def _end_after(self, under_way: set[asyncio.Task[None]]) -> None:
        """Stop listening once the requests that are under way have been answered, or ``drain_s`` is over.

        Until then connections are taken, so that whoever asks is told to come again later or elsewhere.
        """
        if under_way:
            await asyncio.wait(under_way, timeout=self._service.limits.drain_s)
        self.config.timeout_graceful_shutdown = 0 if any(not task.done() for task in under_way) else _LAST_S
        self.should_exit = True


def listen(address: Address) -> socket.socket:
    """A socket at ``address``. Raises UserError where there can be none."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off (40 ms of waiting in an answer) only where the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # What one who reads nothing can pile up in the kernel; left alone, that grows to megabytes.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listening.bind((address.host, address.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise UserError(
            f"{address.host}:{address.port} cannot be listened on ({error.strerror}); give --host or --port"
        ) from None
    return listening

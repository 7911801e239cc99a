"""The judge server of one node of a cluster. It is the class of a Ray actor, but does not depend on Ray."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.core.http.server import listen, server
from whetstone.core.http.settings import Address
from whetstone.judge import Judge
from whetstone.judge.workers.wire import unpack
from whetstone.service.serve import build_app
from whetstone.service.service import Service
from whetstone.service.settings import ServiceLimits
from whetstone.service.telemetry import Telemetry


class NodeServerSetup(Struct, frozen=True):
    """How to start a node's server.

    host: the address to listen on. token: the token that its clients must send. settings: the arguments of
    ``Judge`` other than ``workers``. version: the Whetstone version of the process that starts it.
    """

    host: str
    token: str
    workers: int
    settings: dict[str, Any]
    limits: ServiceLimits
    version: str = __version__


class NodeServer:
    """A judge and the HTTP server in front of it, in this process."""

    def __init__(self, setup: bytes) -> None:
        self._setup = unpack(setup, NodeServerSetup)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> tuple[str, str]:
        """Start judge and server. Return the server's URL, or an empty text and why they cannot start."""
        setup = self._setup
        # Another version may judge differently, and its messages may have another form.
        if setup.version != __version__:
            return "", f"it has Whetstone {__version__}, the server {setup.version}: install the same version"
        try:
            judge = await asyncio.to_thread(Judge, setup.workers, **setup.settings)
            listening = listen(Address(host=setup.host, port=0))
        except UserError as error:
            return "", str(error)
        # The server in front of the cluster writes the log.
        service = Service(judge, setup.workers, setup.limits, Telemetry(log=False))
        app = build_app(service, (setup.token,))
        self._serving = asyncio.create_task(server(app, service).serve([listening]))
        # A URL has an IPv6 address in brackets.
        host = f"[{setup.host}]" if ":" in setup.host else setup.host
        return f"http://{host}:{listening.getsockname()[1]}", ""

    async def wait(self) -> None:
        """Return when the server has ended."""
        if self._serving is not None:
            await asyncio.wait((self._serving,))

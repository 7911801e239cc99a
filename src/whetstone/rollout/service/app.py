"""The HTTP endpoints of a flow, and the server that runs them until a signal stops it.

``wire.py`` defines the messages; the service's admission layer checks tokens. After any end, a restart
continues from the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.http.admission import AdmissionLayer, visit_of
from whetstone.core.http.refusal import RequestRefused, bad_request, json_response
from whetstone.core.http.request_body import body_of, cancel_on_disconnect
from whetstone.core.http.server import listen, server
from whetstone.core.http.service_host import RequestLog
from whetstone.core.http.settings import Address, HostLimits
from whetstone.rollout.async_flow import AsyncFlow, batch_response
from whetstone.rollout.file_log import FileLog
from whetstone.rollout.flow_rules import FlowRefusal, FlowRules
from whetstone.rollout.identity import Identity
from whetstone.rollout.protocol import BatchPending, LeaseRequest, LeasesReturned, TrainerRequest
from whetstone.rollout.scheduler import FlowScheduler
from whetstone.rollout.service import wire
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import BatchRecord, new_state

_MIB = 1 << 20
_CLIENT_CLOSED = 499
# Requests that a client may end while it waits, for example when it drains. That is no failure.
_LONG_POLLS = frozenset({"/v1/take", "/v1/batch"})


class _FlowLimits(HostLimits, frozen=True, kw_only=True):
    """Limits of requests. A body may hold many groups. Draining is short because no program runs here."""

    most_body_bytes: int = 256 * _MIB
    drain_s: float = 5.0


class _FlowTelemetry(RequestLog):
    """Does not report a client that disconnects during a long poll as a failure."""

    def failed(self, endpoint: str, status: int) -> bool:
        """Return whether the request is logged as a failure."""
        return super().failed(endpoint, status) and not (status == _CLIENT_CLOSED and endpoint in _LONG_POLLS)


class _FlowHost:
    """The flow as a service; see ``whetstone.core.http.service_host.ServiceHost``."""

    def __init__(self, flow: AsyncFlow, identity: Identity, telemetry: _FlowTelemetry) -> None:
        self.flow, self.identity, self.telemetry = flow, identity, telemetry
        self.limits = _FlowLimits()
        self.draining = False
        self.held_bytes = 0
        self._maintenance: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Start the periodic check of leases."""
        self._maintenance = asyncio.get_running_loop().create_task(self.flow.run())


T = TypeVar("T")
Handler = Callable[[_FlowHost, bytes], Coroutine[Any, Any, Response]]


async def take(host: _FlowHost, body: bytes) -> Response:
    """Serve POST /v1/take: a LeaseRequest; the response is a LeaseResponse."""
    return _packed(await host.flow.take(_read(body, LeaseRequest)))


async def deliver(host: _FlowHost, body: bytes) -> Response:
    """Serve POST /v1/deliver: a frame with a DeliveryRequest; the response is DeliveryReceipts."""
    try:
        request = wire.read_delivery(body)
    except wire.MessageError as error:
        raise bad_request(f"the body: {error}") from None
    return _packed(wire.DeliveryReceipts(await host.flow.deliver(request)))


async def give_back(host: _FlowHost, body: bytes) -> Response:
    """Serve POST /v1/give_back."""
    await host.flow.give_back(_read(body, LeasesReturned))
    return _packed(wire.Acknowledgement())


async def batch(host: _FlowHost, body: bytes) -> Response:
    """Serve POST /v1/batch: a TrainerRequest; the response is frames, which are sent group by group."""
    request = _read(body, TrainerRequest)
    found = await host.flow.batch_record(request)
    if isinstance(found, BatchPending):
        return Response(wire.frame(wire.encode(found)), media_type=wire.FRAME)
    return StreamingResponse(_frames(host, request.version, found), media_type=wire.FRAME)


async def publish(host: _FlowHost, body: bytes) -> Response:
    """Serve POST /v1/publish."""
    message = _read(body, wire.PublishRequest)
    await host.flow.publish(message.model, message.offer)
    return _packed(wire.Acknowledgement())


async def resume(host: _FlowHost, body: bytes) -> Response:
    """Serve POST /v1/resume."""
    message = _read(body, wire.ResumeRequest)
    await host.flow.resume(message.model, message.version, message.drawn, message.unused)
    return _packed(wire.Acknowledgement())


async def hello(host: _FlowHost, body: bytes) -> Response:
    """Serve POST /v1/hello: an Identity; the response is an Acknowledgement, or how the run differs."""
    if difference := host.identity.difference(_read(body, Identity)):
        raise RequestRefused(409, "identity", difference)
    return _packed(wire.Acknowledgement())


async def status(host: _FlowHost, _: bytes) -> Response:
    """Serve GET /v1/status."""
    # This writes null for NaN, which is no JSON and which a replica may send as a figure of its load.
    return Response(msgspec.json.encode(host.flow.status()), media_type="application/json")


async def ping(_: _FlowHost, __: bytes) -> Response:
    """Serve GET /v1/ping: confirm that a flow listens here."""
    return json_response({"flow": True})


# By path: the method, the handler, and whether only roles of this run may use it.
ENDPOINTS: dict[str, tuple[str, Handler, bool]] = {
    "/v1/ping": ("GET", ping, False),
    "/v1/status": ("GET", status, False),
    "/v1/hello": ("POST", hello, False),
    "/v1/take": ("POST", take, True),
    "/v1/deliver": ("POST", deliver, True),
    "/v1/give_back": ("POST", give_back, True),
    "/v1/batch": ("POST", batch, True),
    "/v1/publish": ("POST", publish, True),
    "/v1/resume": ("POST", resume, True),
}


def build_app(host: _FlowHost, tokens: tuple[str, ...] = ()) -> ASGIApp:
    """Build the application. ``tokens``: accepted tokens; without any, every client is accepted."""
    return AdmissionLayer(_Routes(host), host, tokens)


class _Routes:
    def __init__(self, host: _FlowHost) -> None:
        self._host = host
        self._run = host.identity.digest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI request. Raises RequestRefused."""
        path = scope["path"]
        if path not in ENDPOINTS:
            raise RequestRefused(
                404, "no_such_path", f"there is no {path[:100]}{did_you_mean(path[:100], ENDPOINTS)}"
            )
        method, handler, of_this_run = ENDPOINTS[path]
        if scope["method"] != method:
            raise RequestRefused(405, "method", f"{path} only accepts {method}")
        request = Request(scope, receive)
        visit_of(scope).endpoint = path
        if of_this_run and request.headers.get(wire.RUN_HEADER) != self._run:
            raise RequestRefused(
                409, "identity", "this role belongs to another run; /v1/hello states the difference"
            )
        async with body_of(request, self._host) as body:
            try:
                response = await cancel_on_disconnect(request, handler(self._host, body))
            except FlowRefusal as refusal:
                raise RequestRefused(409, refusal.code, str(refusal)) from None
            except UserError as error:
                self._host.telemetry.say("failed", endpoint=path, why=str(error))
                # 507 makes the client retry: the log can be written again once the disk has space.
                raise RequestRefused(507, "log", str(error), 1.0) from None
        await response(scope, receive, send)


async def _frames(host: _FlowHost, version: int, record: BatchRecord) -> AsyncIterator[bytes]:
    # Groups are read one by one, so that memory never has the whole batch.
    yield wire.frame(wire.encode(batch_response(version, record, lambda _: b"")))
    for item in record.groups:
        yield wire.frame(host.flow.scheduler.log.read(item.location))


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return wire.decode(body, kind)
    except wire.MessageError as error:
        raise bad_request(f"the body: {error}") from None


def _packed(value: Struct) -> Response:
    return Response(wire.encode(value), media_type=wire.PACKED)


DEFAULT_PORT = 8090


def serve_flow(
    address: Address,
    rules: FlowRules,
    source: PromptSource[str],
    folder: Path,
    identity: Identity,
    *,
    stall_s: float = 60.0,
    on_listening: Callable[[str, int], None] = lambda host, port: None,
) -> None:
    """Serve until SIGTERM or SIGINT. ``folder`` holds the log; a restart with the same folder continues
    there.

    A log without events is removed at the end, and may belong to another run at the start. on_listening:
    called with the host and the port.

    Raises UserError for an address that is not available, for one that others can reach without a token, and
    for a folder that is in use, belongs to another run, or cannot be written.
    """
    address.check("the flow would serve")
    telemetry = _FlowTelemetry()
    listening = listen(address)
    try:
        log = FileLog(folder, identity.log_digest)
        if log.state is None:
            log.begin(new_state(rules.models))
        elif log.truncated_bytes:
            telemetry.say("log_cut", bytes=log.truncated_bytes)
        scheduler = FlowScheduler(rules, source, log, time.monotonic(), log.state)
        host, port = listening.getsockname()[:2]
        drawn = scheduler.state.drawn
        telemetry.say("listening", host=host, port=port, tokens=len(address.tokens), drawn=drawn)
        on_listening(host, port)
        flow = AsyncFlow(scheduler, log_event=telemetry.say, stall_s=stall_s)
        # asyncio would warn about every client that disconnects.
        logging.getLogger("asyncio").setLevel(logging.ERROR)
        service = _FlowHost(flow, identity, telemetry)
        asyncio.run(server(build_app(service, address.tokens), service).serve([listening]))
        log.close()
        # An empty log would make a corrected recipe fail as that of another run.
        if scheduler.state.is_new:
            log.remove()
    finally:
        listening.close()
        telemetry.say("ended")

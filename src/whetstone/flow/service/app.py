"""The endpoints of a flow: what they take and give is in ``wire.py``, who may ask in the judge's door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from whetstone.errors import UserError, did_you_mean
from whetstone.flow.books import Record
from whetstone.flow.exchange import Ask, Waiting, Wish
from whetstone.flow.identity import Identity
from whetstone.flow.refusal import FlowRefusal
from whetstone.flow.service import wire
from whetstone.flow.service.host import FlowHost
from whetstone.judge_service.door import Door, visit_of
from whetstone.judge_service.refusal import Refused, bad_request, json_response
from whetstone.judge_service.visiting import body_of, while_there

T = TypeVar("T")
Handler = Callable[[FlowHost, bytes], Coroutine[Any, Any, Response]]


async def take(host: FlowHost, body: bytes) -> Response:
    """POST /v1/take: an Ask; News."""
    return _packed(await host.flow.take(_read(body, Ask)))


async def deliver(host: FlowHost, body: bytes) -> Response:
    """POST /v1/deliver: a frame; Receipts."""
    try:
        replica, deliveries, incarnation = wire.read_delivery(body)
    except wire.Garbled as error:
        raise bad_request(f"the body: {error}") from None
    return _packed(wire.Receipts(await host.flow.deliver(replica, deliveries, incarnation)))


async def give_back(host: FlowHost, body: bytes) -> Response:
    """POST /v1/give_back."""
    back = _read(body, wire.GivenBack)
    await host.flow.give_back(
        back.replica, back.serials, back.why, leaves=back.leaves, incarnation=back.incarnation
    )
    return _packed(wire.Done())


async def batch(host: FlowHost, body: bytes) -> Response:
    """POST /v1/batch: a Wish; a frame, which is sent group by group."""
    wish = _read(body, Wish)
    found = await host.flow.record(wish)
    if isinstance(found, Waiting):
        return Response(
            wire.head_bytes(wire.MadeHead(wish.version, waiting=found.why)), media_type=wire.FRAME
        )
    return StreamingResponse(_parts(host, wish.version, found), media_type=wire.FRAME)


async def publish(host: FlowHost, body: bytes) -> Response:
    """POST /v1/publish."""
    said = _read(body, wire.Publishes)
    await host.flow.publish(said.model, said.offer)
    return _packed(wire.Done())


async def resume(host: FlowHost, body: bytes) -> Response:
    """POST /v1/resume."""
    said = _read(body, wire.Resumes)
    await host.flow.resume(said.model, said.version, said.drawn, said.unused)
    return _packed(wire.Done())


async def hello(host: FlowHost, body: bytes) -> Response:
    """POST /v1/hello: an Identity; Done, or in which way it is another run's."""
    if difference := host.identity.difference(_read(body, Identity)):
        raise Refused(409, "identity", difference)
    return _packed(wire.Done())


async def status(host: FlowHost, _: bytes) -> Response:
    """GET /v1/status."""
    return Response(json.dumps(host.flow.status()), media_type="application/json")


async def ping(_: FlowHost, __: bytes) -> Response:
    """GET /v1/ping: it is there, and it is a flow."""
    return json_response({"flow": True})


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
"""By path: the method, the handler, and whether it is for roles of this run alone."""


def build_app(host: FlowHost, tokens: tuple[str, ...] = ()) -> ASGIApp:
    """The application, for those who have one of ``tokens`` (none: for everybody who can reach it)."""
    return Door(_Routes(host), host, tokens)


class _Routes:
    def __init__(self, host: FlowHost) -> None:
        self._host = host
        self._run = host.identity.digest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Raises Refused."""
        path = scope["path"]
        if path not in ENDPOINTS:
            raise Refused(
                404, "no_such_path", f"there is no {path[:100]}{did_you_mean(path[:100], ENDPOINTS)}"
            )
        method, handler, of_this_run = ENDPOINTS[path]
        if scope["method"] != method:
            raise Refused(405, "method", f"{path} is asked by {method}")
        request = Request(scope, receive)
        visit_of(scope).endpoint = path
        if of_this_run and request.headers.get(wire.RUN_HEADER) != self._run:
            raise Refused(409, "identity", "this role is of another run; /v1/hello says in which way")
        async with body_of(request, self._host) as body:
            try:
                response = await while_there(request, handler(self._host, body))
            except FlowRefusal as refusal:
                raise Refused(409, refusal.code, str(refusal)) from None
            except UserError as error:
                self._host.telemetry.say("failed", endpoint=path, why=str(error))
                raise Refused(507, "log", str(error), 1.0) from None
        await response(scope, receive, send)


async def _parts(host: FlowHost, version: int, record: Record) -> AsyncIterator[bytes]:
    told = [
        wire.ToldPiece(item.draw, item.reason, wire.Piece(item.facts, item.place.size, item.place.crc))
        for item in record.items
    ]
    yield wire.head_bytes(wire.MadeHead(version, told, record.lost, record.drawn, record.unused))
    for item in record.items:
        yield host.flow.desk.log.read(item.place)


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return wire.decoded(body, kind)
    except wire.Garbled as error:
        raise bad_request(f"the body: {error}") from None


def _packed(value: Any) -> Response:
    return Response(msgspec.msgpack.encode(value), media_type=wire.PACKED)

"""Endpoints as ASGI applications, and their description as OpenAPI. A call is cancelled when its client
disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whetstone import __version__
from whetstone.core.http.admission import Visit, visit_of
from whetstone.core.http.error_body import ErrorReply
from whetstone.core.http.refusal import RequestRefused, too_busy
from whetstone.core.http.request_body import body_of, cancel_on_disconnect, requested_deadline
from whetstone.service.messages import estimate_memory, read_message
from whetstone.service.service import Service

T = TypeVar("T")
# Decoding a body of this size takes a few milliseconds, which does not delay other requests.
_SHORT_BYTES = 64 << 10


@dataclass
class EndpointCall:
    """A request as its handler gets it, with its complete body.

    ``held_bytes`` is the memory that its decoded values are counted for, without the body.
    """

    service: Service
    request: Request
    body: bytes
    visit: Visit

    invalid_status: int = 400
    held_bytes: int = 0

    async def message(self, kind: type[T]) -> T:
        """Decode the body to a ``kind``; a long body in a thread. Raises RequestRefused."""
        content_type = self.request.headers.get("content-type", "")
        try:
            if len(self.body) <= _SHORT_BYTES:
                return read_message(self.body, content_type, kind)
            self._reserve_memory(await asyncio.to_thread(estimate_memory, self.body, content_type))
            return await asyncio.to_thread(read_message, self.body, content_type, kind)
        except RequestRefused as refused:
            if refused.status == 400:
                raise RequestRefused(self.invalid_status, refused.code, refused.message) from None
            raise

    def _reserve_memory(self, added_bytes: int) -> None:
        """Count memory until the response is sent. Raises RequestRefused above the limit of the service."""
        self.service.held_bytes += added_bytes
        self.held_bytes += added_bytes
        if self.service.held_bytes > (most := self.service.limits.most_held_bytes):
            raise too_busy(f"requests hold {most >> 20} MiB already", 5.0)


Handler = Callable[[EndpointCall], Awaitable[Response]]


@dataclass(frozen=True)
class HttpEndpoint:
    """A path, its handler, and its description for OpenAPI.

    request_type, response_type: types of the bodies, or None for other bodies than JSON.
    refuses: error statuses of this endpoint, in addition to those of all endpoints and of all bodies.
    invalid_status: the status for a body that is not a ``request_type``.
    forwarded: on a cluster, a server of a node answers it.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    request_type: Any = None
    response_type: Any = None
    refuses: tuple[int, ...] = ()
    invalid_status: int = 400
    parameters: tuple[str, ...] = ()
    forwarded: bool = False

    @property
    def name(self) -> str:
        """The name in metrics and logs."""
        return self.path


class EndpointApp:
    """An endpoint as an ASGI application."""

    def __init__(self, endpoint: HttpEndpoint, service: Service) -> None:
        self._endpoint, self._service = endpoint, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, call the handler and send the response. Raises RequestRefused, ClientGone."""
        request = Request(scope, receive)
        visit = visit_of(scope)
        visit.endpoint = self._endpoint.name
        async with body_of(request, self._service) as body:
            call = EndpointCall(self._service, request, body, visit, self._endpoint.invalid_status)

            async def work() -> None:
                response = await self._forwarded(call) if self._endpoint.forwarded else None
                response = response or await self._endpoint.handler(call)
                await response(scope, receive, send)

            try:
                await cancel_on_disconnect(request, work())
            finally:
                self._service.held_bytes -= call.held_bytes

    async def _forwarded(self, call: EndpointCall) -> Response | None:
        """Return the response of a node of the cluster. None on a single machine."""
        content_type = call.request.headers.get("content-type", "")
        asked_s = requested_deadline(call.request)
        path = self._endpoint.path
        return await self._service.forwarded(call.visit.client, path, call.body, content_type, asked_s)


_REF = "#/components/schemas/{name}"
_STATUSES_OF_ALL = (401, 403, 503)
_STATUSES_OF_BODIES = (400, 408, 413, 504)
_STATUS_TEXTS = {
    400: "The request is invalid. The message names the place.",
    401: "No token, or an unknown token.",
    403: "A request of a web page without a token.",
    404: "Unknown here.",
    408: "The body did not arrive in time.",
    422: "The body is invalid, and the message names the place; or the tests themselves fail.",
    413: "The body is too large, or has too many values.",
    500: "The tests cannot be read. The message has the reason.",
    501: "Not supported by this server. The message names the alternative.",
    503: "The server is too busy, or is shutting down; see Retry-After.",
    504: "The deadline passed; see Retry-After.",
}


def openapi(endpoints: Sequence[HttpEndpoint]) -> dict[str, Any]:
    """Return the OpenAPI description of ``endpoints``."""
    types = [
        kind
        for endpoint in endpoints
        for kind in (endpoint.request_type, endpoint.response_type)
        if kind is not None
    ]
    schemas, components = msgspec.json.schema_components([*types, ErrorReply], ref_template=_REF)
    type_schemas = iter(schemas)
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        request_type = next(type_schemas) if endpoint.request_type is not None else None
        response_type = next(type_schemas) if endpoint.response_type is not None else None
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(
            endpoint, request_type, response_type
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Whetstone judge", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": dict(components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # A server without a token file accepts requests without a token.
        "security": [{"token": []}, {}],
    }


def _operation(endpoint: HttpEndpoint, request_type: Any, response_type: Any) -> dict[str, Any]:
    statuses = {
        *_STATUSES_OF_ALL,
        *endpoint.refuses,
        *((*_STATUSES_OF_BODIES, endpoint.invalid_status) if request_type else ()),
    }
    responses: dict[str, Any] = {"200": {"description": "Done."}}
    if response_type is not None:
        responses["200"]["content"] = {"application/json": {"schema": response_type}}
    error_content = {"application/json": {"schema": {"$ref": _REF.format(name="ErrorReply")}}}
    for status in sorted(statuses):
        responses[str(status)] = {"description": _STATUS_TEXTS[status], "content": error_content}
    operation: dict[str, Any] = {"summary": endpoint.summary, "responses": responses}
    if request_type is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": request_type}},
        }
    return operation

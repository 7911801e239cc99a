"""One call of an endpoint: from the request to the answer, given up when its client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whetstone.judge_service.door import Visit, visit_of
from whetstone.judge_service.reading import memory_of, read_message
from whetstone.judge_service.refusal import Refused, too_busy
from whetstone.judge_service.service import Service
from whetstone.judge_service.visiting import body_of, while_there

T = TypeVar("T")
_SHORT_BYTES = 64 << 10
"""A body of so many bytes is read in a few milliseconds at most."""


@dataclass
class Call:
    """What a handler gets: the service, the request with its whole body, and whose it is.

    ``held_bytes``: what its values are counted for beside the body.
    """

    service: Service
    request: Request
    body: bytes
    visit: Visit

    invalid_status: int = 400
    held_bytes: int = 0

    async def message(self, kind: type[T]) -> T:
        """The body as a ``kind``; a long one is read beside the event loop. Raises Refused."""
        content_type = self.request.headers.get("content-type", "")
        try:
            if len(self.body) <= _SHORT_BYTES:
                return read_message(self.body, content_type, kind)
            self._hold(await asyncio.to_thread(memory_of, self.body, content_type))
            return await asyncio.to_thread(read_message, self.body, content_type, kind)
        except Refused as refused:
            if refused.status == 400:
                raise Refused(self.invalid_status, refused.code, refused.message) from None
            raise

    def _hold(self, more_bytes: int) -> None:
        """Count memory until the request is answered. Raises Refused where that is more than there may be."""
        self.service.held_bytes += more_bytes
        self.held_bytes += more_bytes
        if self.service.held_bytes > (most := self.service.limits.most_held_bytes):
            raise too_busy(f"requests hold {most >> 20} MiB already", 5.0)


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """A path, what serves it, and what its page of the OpenAPI says: ``takes`` and ``gives`` are types.

    ``lines``: it gives a line of JSON for each, as they come. ``refuses``: statuses besides 200 that it has
    of its own; those of the door and of bodies are known of all. ``invalid_status``: the answer to a body
    that does not fit ``takes``.
    """

    method: str
    path: str
    handler: Handler
    says: str
    takes: Any = None
    gives: Any = None
    lines: bool = False
    refuses: tuple[int, ...] = ()
    invalid_status: int = 400
    parameters: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What metrics and logs call it."""
        return self.path


class Served:
    """An endpoint as an ASGI application."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        self._endpoint, self._service = endpoint, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, have it handled, send the answer. Raises Refused, ClientGone."""
        request = Request(scope, receive)
        visit = visit_of(scope)
        visit.endpoint = self._endpoint.name
        async with body_of(request, self._service) as body:
            call = Call(self._service, request, body, visit, self._endpoint.invalid_status)

            async def work() -> None:
                response = await self._endpoint.handler(call)
                await response(scope, receive, send)

            try:
                await while_there(request, work())
            finally:
                self._service.held_bytes -= call.held_bytes

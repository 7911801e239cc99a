"""Heads of requests that never end: uvicorn's protocol, with a limit on the time and size of a head."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from whetstone.judge_service.host import HostTelemetry
from whetstone.judge_service.refusal import Refused, as_json
from whetstone.judge_service.settings import HostLimits

_FIELD_BYTES = len(": \r\n")
_PHRASES = {408: "Request Timeout", 431: "Request Header Fields Too Large"}


def protocol_with(limits: HostLimits, telemetry: HostTelemetry) -> type[asyncio.Protocol]:
    """The protocol that a server is given: it hangs up on those who send no whole head in time."""

    class Protocol(_TimedHeads):
        head_s = limits.head_s
        most_bytes = limits.most_head_bytes
        said_to = telemetry

    return Protocol


class _TimedHeads(HttpToolsProtocol):
    """A head is awaited from the beginning, and after an answer from the first byte on.

    (How long a connection may be idle between requests is uvicorn's own limit.) One that comes whole, as
    nearly all do, costs no timer.
    """

    head_s: ClassVar[float]
    most_bytes: ClassVar[int]
    said_to: ClassVar[HostTelemetry]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._awaits_head = True
        self._head_bytes = self._fields_bytes = 0
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by asyncio, as are the next two."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.head_s, self._late)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and see whether the head is whole."""
        super().data_received(data)
        if self._refused:
            return
        if not self._awaits_head:
            self._stop_timer()
            return
        self._head_bytes += len(data)  # of a field that is not whole yet, the parser says nothing
        if self._head_bytes > self.most_bytes:
            self._refuse_long()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_s, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Called by the parser, as are the next five."""
        self._fields_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request's address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or one after a body in pieces."""
        self._count(len(name) + len(value) + _FIELD_BYTES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole; one that came at once was not measured before."""
        if self._refused:
            return
        self._awaits_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body; that of a refused request is nobody's."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if not self._refused:
            super().on_message_complete()

    def _count(self, size: int) -> None:
        self._fields_bytes += size
        if self._fields_bytes > self.most_bytes and not self._refused:
            self._head_bytes = self._fields_bytes
            self._refuse_long()

    def on_response_complete(self) -> None:
        """Called at the end of an answer: unless a request is queued behind it, a head comes next."""
        self._awaits_head = not self.pipeline
        super().on_response_complete()

    def _refuse_long(self) -> None:
        self._refuse(Refused(431, "long_head", f"the head is longer than {self.most_bytes >> 10} KiB"))

    def _late(self) -> None:
        self._timer = None
        self._refuse(Refused(408, "slow_head", f"no whole head of a request came in {self.head_s:g} s"))

    def _refuse(self, refused: Refused) -> None:
        self._stop_timer()
        self._refused = True
        if self.transport.is_closing():
            return
        body = as_json(refused.reply())
        head = f"HTTP/1.1 {refused.status} {_PHRASES[refused.status]}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        if self._head_bytes:  # one who never said anything hears nothing
            self.transport.write(head.encode() + body)
        self.transport.close()
        client = self.client[0] if self.client else "unix"
        self.said_to.answered("none", refused.status, self.head_s, client=client, error=refused.code)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""A limit on the time and size of a request's head, as a subclass of uvicorn's protocol."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from whetstone.core.http.refusal import RequestRefused, as_json
from whetstone.core.http.service_host import HostTelemetry
from whetstone.core.http.settings import HostLimits

_FIELD_BYTES = len(": \r\n")
_PHRASES = {408: "Request Timeout", 431: "Request Header Fields Too Large"}


def protocol_with(limits: HostLimits, telemetry: HostTelemetry) -> type[asyncio.Protocol]:
    """Return the protocol of a server. It closes connections whose head is too slow or too large."""

    class Protocol(_HeadLimitProtocol):
        head_s = limits.head_s
        most_bytes = limits.most_head_bytes
        telemetry_sink = telemetry

    return Protocol


class _HeadLimitProtocol(HttpToolsProtocol):
    """Limits the head from the start of a connection, and after a response from the first byte on.

    (The idle time of a connection between requests is limited by uvicorn.) A head that arrives at once, as
    most do, needs no timer.
    """

    head_s: ClassVar[float]
    most_bytes: ClassVar[int]
    telemetry_sink: ClassVar[HostTelemetry]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._expects_head = True
        self._head_bytes = self._fields_bytes = 0
        self._refused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer. asyncio calls this and the next two methods."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.head_s, self._on_timeout)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and check whether the head is complete."""
        super().data_received(data)
        if self._refused:
            return
        if not self._expects_head:
            self._stop_timer()
            return
        self._head_bytes += len(data)  # the parser does not report incomplete fields
        if self._head_bytes > self.most_bytes:
            self._refuse_long()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_s, self._on_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Start a request. The parser calls this and the next five methods."""
        self._fields_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the request's address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header field, or a field after a chunked body."""
        self._count(len(name) + len(value) + _FIELD_BYTES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End the head, unless the request was refused."""
        if self._refused:
            return
        self._expects_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body, unless the request was refused."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request, unless it was refused."""
        if not self._refused:
            super().on_message_complete()

    def _count(self, size: int) -> None:
        self._fields_bytes += size
        if self._fields_bytes > self.most_bytes and not self._refused:
            self._head_bytes = self._fields_bytes
            self._refuse_long()

    def on_response_complete(self) -> None:
        """Expect the next head, unless the next request has already arrived."""
        self._expects_head = not self.pipeline
        super().on_response_complete()

    def _refuse_long(self) -> None:
        self._refuse(RequestRefused(431, "long_head", f"the head is longer than {self.most_bytes >> 10} KiB"))

    def _on_timeout(self) -> None:
        self._timer = None
        self._refuse(
            RequestRefused(
                408, "slow_head", f"the head of the request was not complete after {self.head_s:g} s"
            )
        )

    def _refuse(self, refused: RequestRefused) -> None:
        self._stop_timer()
        self._refused = True
        if self.transport.is_closing():
            return
        body = as_json(refused.reply())
        head = f"HTTP/1.1 {refused.status} {_PHRASES[refused.status]}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        if self._head_bytes:  # a client that sent nothing gets no response
            self.transport.write(head.encode() + body)
        self.transport.close()
        client = self.client[0] if self.client else "unix"
        self.telemetry_sink.answered("none", refused.status, self.head_s, client=client, error=refused.code)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

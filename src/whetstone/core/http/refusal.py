"""Refusals of requests: an HTTP status, a code for programs, and a message for people."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from starlette.responses import Response

from whetstone.core.http.error_body import ErrorDetail, ErrorReply

LONGEST_RETRY_AFTER_S = 60


class RequestRefused(Exception):
    """A request that is refused. ``retry_after_s``: the earliest time for another try."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after_s = retry_after_s

    def reply(self) -> ErrorReply:
        """Return the body of the response."""
        return ErrorReply(ErrorDetail(self.code, self.message), self.message)

    def response(self) -> Response:
        """Return the HTTP response."""
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            wait = min(max(math.ceil(self.retry_after_s), 1), LONGEST_RETRY_AFTER_S)
            headers["Retry-After"] = str(wait)
        if self.code == "draining":
            headers["Connection"] = "close"  # a new connection may reach another server
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="whetstone", Basic realm="whetstone"'
        return json_response(self.reply(), self.status, headers)


class ClientGone(Exception):
    """The client has closed the connection."""


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an HTTP response with ``value`` as JSON."""
    return Response(as_json(value), status, headers, media_type="application/json")


def as_json(value: Any) -> bytes:
    """Return ``value`` as JSON, even if it contains lone surrogates from a request."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def bad_request(message: str, code: str = "bad_request") -> RequestRefused:
    """Return the refusal of an invalid request. A repetition is refused as well."""
    return RequestRefused(400, code, message)


def too_late(retry_after_s: float, why: str = "the deadline passed before it was judged") -> RequestRefused:
    """Return the refusal of an accepted request that was not served in time. Common clients retry after a
    504."""
    return RequestRefused(504, "deadline", why, retry_after_s)


def too_busy(why: str, retry_after_s: float) -> RequestRefused:
    """Return the refusal of a request because the server is busy."""
    return RequestRefused(503, "busy", why, retry_after_s)

"""What is answered in place of a judgement: a status, a code for programs, and words for people."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from starlette.responses import Response

from whetstone.judge_service.refusal_words import ErrorReply, Problematic

LONGEST_RETRY_AFTER_S = 60


class Refused(Exception):
    """A request that gets no judgement. ``retry_after_s``: when it may be worth another try."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after_s = retry_after_s

    def reply(self) -> ErrorReply:
        """Its body."""
        return ErrorReply(Problematic(self.code, self.message), self.message)

    def response(self) -> Response:
        """Its answer over HTTP."""
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            wait = min(max(math.ceil(self.retry_after_s), 1), LONGEST_RETRY_AFTER_S)
            headers["Retry-After"] = str(wait)
        if self.code == "draining":
            headers["Connection"] = "close"  # the next request may find another server
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="whetstone", Basic realm="whetstone"'
        return json_response(self.reply(), self.status, headers)


class ClientGone(Exception):
    """Whoever asked has hung up: nobody is there to be answered."""


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``value`` as JSON."""
    return Response(as_json(value), status, headers, media_type="application/json")


def as_json(value: Any) -> bytes:
    """``value`` as JSON, also where it repeats lone surrogates that a request brought."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def bad_request(message: str, code: str = "bad_request") -> Refused:
    """A request that will be as wrong the next time."""
    return Refused(400, code, message)


def too_late(retry_after_s: float, why: str = "the deadline passed before it was judged") -> Refused:
    """A request that was taken in and could not be served in time: known clients try again after a 504."""
    return Refused(504, "deadline", why, retry_after_s)


def too_busy(why: str, retry_after_s: float) -> Refused:
    """A request that is not taken in."""
    return Refused(503, "busy", why, retry_after_s)

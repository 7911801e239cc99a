"""What every request passes: who asks, how much, how long; and what is counted and logged of it.

A plain ASGI layer around the routes. Beyond it, a handler finds a ``Visit`` in the request's scope.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import re
import secrets
import time
import traceback
from collections.abc import MutableMapping
from typing import Any

from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whetstone.judge_service.host import Host
from whetstone.judge_service.refusal import ClientGone, Refused

_OPEN = frozenset({"/v1/ping", "/healthz", "/readyz"})
"""Paths that need no token, in every service."""
_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class Visit(Struct):
    """One request: its id, whose it is, the name of its endpoint, and what is to be logged besides."""

    id: str
    client: str
    endpoint: str = "none"
    more: dict[str, Any] = {}


def visit_of(scope: MutableMapping[str, Any]) -> Visit:
    """The visit that the door has put into a request's scope."""
    return scope["whetstone.visit"]


class Door:
    """The layer; see the module's text."""

    def __init__(
        self, app: ASGIApp, service: Host, tokens: tuple[str, ...], open_paths: frozenset[str] = frozenset()
    ) -> None:
        """``open_paths`` need no token either."""
        self._app, self._service = app, service
        self._open = _OPEN | open_paths
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        asked = headers.get(b"x-request-id", "")
        visit = Visit(asked if _ID.fullmatch(asked) else secrets.token_hex(8), _address(scope))
        scope["whetstone.visit"] = visit
        answer = _Answer(send, visit.id, self._service.limits.write_silence_s)
        began = time.monotonic()
        self._service.telemetry.open_requests.inc()
        try:
            self._let_in(scope["path"], headers, visit)
            await self._app(scope, receive, answer)
        except Refused as refused:
            visit.more["error"] = refused.code
            if not answer.status:
                await refused.response()(scope, receive, answer)
        except (ClientGone, asyncio.CancelledError, OSError) as error:
            answer.status = answer.status or 499
            visit.more["error"] = "client_gone" if isinstance(error, ClientGone) else type(error).__name__
            if isinstance(error, asyncio.CancelledError):
                raise
        except Exception:
            visit.more["error"] = traceback.format_exc()[-4000:]
            if not answer.status:
                ours = Refused(500, "defect", f"a defect of ours; the server's log has it under {visit.id}")
                await ours.response()(scope, receive, answer)
        finally:
            self._service.telemetry.open_requests.dec()
            seconds = time.monotonic() - began
            self._service.telemetry.answered(
                visit.endpoint, answer.status, seconds, id=visit.id, client=visit.client, **visit.more
            )

    def _let_in(self, path: str, headers: dict[bytes, str], visit: Visit) -> None:
        """Raise Refused for one who has no token, or a page in a browser that has none to give."""
        if path in self._open:
            return
        if self._service.draining and path != "/metrics":
            raise Refused(503, "draining", "the server is ending: it takes nothing in any more", 1.0)
        if not self._tokens:
            if b"origin" in headers:
                raise Refused(403, "origin", "a web page may not ask here without a token (--token-file)")
            return
        given = _token(headers.get(b"authorization", ""))
        # All are compared, so that the time says nothing of which.
        found = [n for n, token in enumerate(self._tokens) if hmac.compare_digest(given, token)]
        if not found:
            why = "the token is not known here" if given else "no token was sent"
            raise Refused(
                401, "token", f"{why}; send `Authorization: Bearer TOKEN`, or a URL with any user and TOKEN"
            )
        visit.client = f"token {found[0] + 1} at {visit.client}"


class _Answer:
    """``send`` with the request's id on the answer, the status noted, and a limit on a reader's silence."""

    def __init__(self, send: Send, id: str, silence_s: float) -> None:
        self._send, self._id, self._silence_s = send, id, silence_s
        self.status = 0

    async def __call__(self, message: Message) -> None:
        """ASGI's send. Raises ClientGone for a reader who takes nothing for too long."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), (b"x-request-id", self._id.encode())]
        try:
            async with asyncio.timeout(self._silence_s):
                await self._send(message)
        except TimeoutError:
            raise ClientGone(f"the client took nothing of its answer for {self._silence_s:g} s") from None


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unix"


def _token(header: str) -> bytes:
    """The token of ``Bearer TOKEN``, or of ``Basic`` with any user and TOKEN as the password."""
    kind, _, rest = header.strip().partition(" ")
    if kind.lower() == "bearer":
        return rest.strip().encode("latin-1")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""

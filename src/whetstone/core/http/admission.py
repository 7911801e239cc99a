"""The checks of every request: token, size and time; and the count and log entry of every request.

It is a plain ASGI layer around the routes. Inside it, a handler finds a ``Visit`` in the request's scope.
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
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whetstone.core.addresses import is_loopback
from whetstone.core.http.refusal import ClientGone, RequestRefused
from whetstone.core.http.service_host import ServiceHost

# Paths that need no token, in every service.
_OPEN_PATHS = frozenset({"/v1/ping", "/healthz", "/readyz"})
_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class Visit(Struct):
    """One request: its id, its client, the name of its endpoint, and more fields for the log."""

    id: str
    client: str
    endpoint: str = "none"
    more: dict[str, Any] = {}


def visit_of(scope: MutableMapping[str, Any]) -> Visit:
    """Return the visit that the layer has put into a request's scope."""
    return scope["whetstone.visit"]


class AdmissionLayer:
    """The layer; see the module docstring."""

    def __init__(
        self,
        app: ASGIApp,
        service: ServiceHost,
        tokens: tuple[str, ...],
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        """``open_paths``: further paths that need no token."""
        self._app, self._service = app, service
        self._open = _OPEN_PATHS | open_paths
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        requested_id = headers.get(b"x-request-id", "")
        visit = Visit(requested_id if _ID.fullmatch(requested_id) else secrets.token_hex(8), _address(scope))
        scope["whetstone.visit"] = visit
        response = _ResponseSender(send, visit.id, self._service.limits.write_silence_s)
        began = time.monotonic()
        self._service.telemetry.open_requests.inc()
        try:
            self._authorize(scope["path"], headers, visit)
            await self._app(scope, receive, response)
        except RequestRefused as refused:
            visit.more["error"] = refused.code
            if not response.status:
                await refused.response()(scope, receive, response)
        except (ClientGone, asyncio.CancelledError, OSError) as error:
            response.status = response.status or 499
            visit.more["error"] = "client_gone" if isinstance(error, ClientGone) else type(error).__name__
            if isinstance(error, asyncio.CancelledError):
                raise
        except Exception:
            # The log has the traceback. The client gets only the id, because a traceback may contain secrets.
            visit.more["error"] = traceback.format_exc()[-4000:]
            if not response.status:
                defect = RequestRefused(
                    500, "defect", f"a defect of the server; its log has the error under {visit.id}"
                )
                await defect.response()(scope, receive, response)
        finally:
            self._service.telemetry.open_requests.dec()
            seconds = time.monotonic() - began
            self._service.telemetry.answered(
                visit.endpoint, response.status, seconds, id=visit.id, client=visit.client, **visit.more
            )

    def _authorize(self, path: str, headers: dict[bytes, str], visit: Visit) -> None:
        """Raise RequestRefused for a request without a valid token. Without tokens, raise it for a web page,
        and for a request that names another host than this machine."""
        if path in self._open:
            return
        # Monitoring must see the draining, and how many requests still run.
        if self._service.draining and path != "/metrics":
            raise RequestRefused(
                503, "draining", "the server is shutting down and accepts no more requests", 1.0
            )
        if not self._tokens:
            # Without tokens every program of this machine may send requests. A web page in its browser must
            # not: browsers send `Origin`.
            if b"origin" in headers:
                raise RequestRefused(
                    403, "origin", "a web page needs a token for this server; start it with --token-file"
                )
            _check_host(headers.get(b"host"))
            return
        token_sent = _token(headers.get(b"authorization", ""))
        # All tokens are compared, so that the time does not show which one matched.
        found = [n for n, token in enumerate(self._tokens) if hmac.compare_digest(token_sent, token)]
        if not found:
            why = "the token is unknown" if token_sent else "no token was sent"
            raise RequestRefused(
                401, "token", f"{why}; send `Authorization: Bearer TOKEN`, or a URL with any user and TOKEN"
            )
        visit.client = f"token {found[0] + 1} at {visit.client}"


class _ResponseSender:
    """Sends a response with the id of its request, remembers its status, and limits the time in which the
    client reads nothing."""

    def __init__(self, send: Send, id: str, silence_s: float) -> None:
        self._send, self._id, self._silence_s = send, id, silence_s
        self.status = 0

    async def __call__(self, message: Message) -> None:
        """Send an ASGI message. Raises ClientGone if the client reads nothing for too long."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), (b"x-request-id", self._id.encode())]
        try:
            async with asyncio.timeout(self._silence_s):
                await self._send(message)
        except TimeoutError:
            raise ClientGone(f"the client read nothing of its response for {self._silence_s:g} s") from None


def _check_host(host: str | None) -> None:
    """Raise RequestRefused for a request that names another host than this machine.

    This stops DNS rebinding: a page of another site could otherwise reach the server by a name of its own,
    and then its requests have no `Origin`. Browsers always name the host.
    """
    if host is None:
        return
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        raise RequestRefused(
            *(421, "host"),
            "without tokens this server only answers to the names 127.0.0.1 and localhost: use one of them, "
            "with the port, or start the server with --token-file",
        )


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unix"


def _token(header: str) -> bytes:
    """Return the token of ``Bearer TOKEN``, or of ``Basic`` with any user and TOKEN as the password."""
    kind, _, rest = header.strip().partition(" ")
    if kind.lower() == "bearer":
        return rest.strip().encode("latin-1")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""

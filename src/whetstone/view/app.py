"""The application: pages, scripts and answers, to those whom the judge's door lets in; nothing writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whetstone.addresses import is_loopback
from whetstone.assets.page import asset
from whetstone.errors import UserError, did_you_mean
from whetstone.judge_service.door import Door, visit_of
from whetstone.judge_service.host import RequestLog
from whetstone.judge_service.refusal import Refused, json_response
from whetstone.judge_service.settings import HostLimits
from whetstone.view.answers import ANSWERS
from whetstone.view.library import Library
from whetstone.view.pages import PAGES, SCRIPT_FILES

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""With every answer. Scripts are ours alone, and files of their own: nothing in a page can become one."""


class ViewLimits(HostLimits, frozen=True, kw_only=True):
    """What requests are held to: none has a body, and none takes long."""

    most_body_bytes: int = 0
    drain_s: float = 2.0


class ViewHost:
    """What stands behind the door; see ``judge_service.host.Host``."""

    def __init__(self, library: Library, telemetry: RequestLog) -> None:
        self.library, self.telemetry = library, telemetry
        self.limits = ViewLimits()
        self.draining = False
        self.held_bytes = 0

    def watch(self) -> None:
        """Nothing runs beside requests."""


def build_app(host: ViewHost, tokens: tuple[str, ...] = ()) -> ASGIApp:
    """The application, for those who have one of ``tokens`` (none: for whoever asks this machine by name)."""
    return _Headers(Door(_Routes(host, any_name=bool(tokens)), host, tokens))


class _Headers:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *more]
            await send(message)

        await self._app(scope, receive, sending)


class _Routes:
    def __init__(self, host: ViewHost, *, any_name: bool) -> None:
        self._host, self._any_name = host, any_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Raises Refused."""
        request = Request(scope, receive)
        path = scope["path"]
        if not self._any_name:
            _check_name(request.headers.get("host", ""))
        make = _maker(path)
        if make is None:
            known = (*PAGES, *ANSWERS, *SCRIPT_FILES)
            raise Refused(404, "no_such_path", f"there is no {path[:100]}{did_you_mean(path[:100], known)}")
        if scope["method"] not in ("GET", "HEAD"):
            raise Refused(405, "method", f"{path} is asked by GET: nothing here can be changed")
        visit_of(scope).endpoint = path
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"), max_num_fields=100))
        try:
            response = await asyncio.to_thread(make, self._host.library, given)
        except UserError as error:
            raise Refused(404, "not_there", str(error)) from None
        await response(scope, receive, send)


def _check_name(host: str) -> None:
    """Raise Refused for a request that names another machine: without tokens, a page that was loaded from
    elsewhere, under a name that leads here now, must not read what is here."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        raise Refused(421, "host", "ask for this page as http://127.0.0.1 or http://localhost, with its port")


def _maker(path: str) -> Callable[[Library, Mapping[str, str]], Response] | None:
    if path in PAGES:
        text = PAGES[path]
        return lambda library, given: Response(
            text(library, given).encode(errors="replace"), media_type="text/html; charset=utf-8"
        )
    if path in ANSWERS:
        answer = ANSWERS[path]
        return lambda library, given: json_response(answer(library, given))
    if path in SCRIPT_FILES:
        script = SCRIPT_FILES[path]
        return lambda library, given: Response(asset(*script), media_type="text/javascript; charset=utf-8")
    return None

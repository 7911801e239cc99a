"""The application and its server: pages, their script and JSON for authorized requests. It never writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.http.admission import AdmissionLayer, visit_of
from whetstone.core.http.refusal import RequestRefused, bad_request, json_response
from whetstone.core.http.server import listen, server
from whetstone.core.http.service_host import RequestLog
from whetstone.core.http.settings import Address, HostLimits
from whetstone.report.page import missing_page, script
from whetstone.report.view.answers import ANSWERS, CSV_PATH, PAGES, SCRIPT_PATH, metrics_csv
from whetstone.report.view.library import Library, check_roots

# The headers of every response. The only script is a file of the package; a page cannot contain one.
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


_MOST_FIELDS = 100


class _ViewLimits(HostLimits, frozen=True, kw_only=True):
    """The limits of requests. No request has a body, and none takes long."""

    most_body_bytes: int = 0
    drain_s: float = 2.0


class _ViewHost:
    """The application behind the admission layer; see ``whetstone.core.http.service_host.ServiceHost``."""

    def __init__(self, library: Library, telemetry: RequestLog) -> None:
        self.library, self.telemetry = library, telemetry
        self.limits = _ViewLimits()
        self.draining = False
        self.held_bytes = 0

    def watch(self) -> None:
        """Do nothing: there are no background tasks."""


def build_app(host: _ViewHost, tokens: tuple[str, ...] = ()) -> ASGIApp:
    """Return the application. Requests need one of ``tokens``; without tokens they must name this machine."""
    return _Headers(AdmissionLayer(_Routes(host), host, tokens))


class _Headers:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI call."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *more]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _Routes:
    def __init__(self, host: _ViewHost) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI call. Raises RequestRefused."""
        path = scope["path"]
        make = _response_maker(path)
        if make is None:
            known = (*PAGES, *ANSWERS, CSV_PATH, SCRIPT_PATH)
            raise RequestRefused(
                404, "no_such_path", f"there is no {path[:100]}{did_you_mean(path[:100], known)}"
            )
        if scope["method"] not in ("GET", "HEAD"):
            raise RequestRefused(405, "method", f"{path} supports GET only; nothing here can be changed")
        visit_of(scope).endpoint = path
        query = _fields_of(scope["query_string"])
        try:
            # In a thread, because reading large files would block all other requests.
            response = await asyncio.to_thread(make, self._host.library, query)
        except UserError as error:
            if path not in PAGES:
                raise RequestRefused(404, "not_there", str(error)) from None
            response = _html(missing_page(str(error)), 404)
        await response(scope, receive, send)


def _fields_of(query: bytes) -> dict[str, str]:
    """Return the fields of a query. Raises RequestRefused for too many of them."""
    try:
        return dict(parse_qsl(query.decode("latin-1"), max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise bad_request(f"a query may have {_MOST_FIELDS} fields; send fewer") from None


def _response_maker(path: str) -> Callable[[Library, Mapping[str, str]], Response] | None:
    if path in PAGES:
        text = PAGES[path]
        return lambda library, query: _html(text(library, query))
    if path in ANSWERS:
        answer = ANSWERS[path]
        return lambda library, query: json_response(answer(library, query))
    if path == CSV_PATH:
        headers = {"content-disposition": 'attachment; filename="metrics.csv"'}
        return lambda library, query: Response(
            metrics_csv(library, query).encode(errors="replace"), headers=headers, media_type="text/csv"
        )
    if path == SCRIPT_PATH:
        return lambda library, query: Response(script(), media_type="text/javascript; charset=utf-8")
    return None


def _html(text: str, status: int = 200) -> Response:
    return Response(text.encode(errors="replace"), status, media_type="text/html; charset=utf-8")


DEFAULT_PORT = 8070


def serve_view(
    address: Address,
    folders: Sequence[Path],
    role_lines: Callable[[Path], list[str]],
    *,
    on_listening: Callable[[str, int], None] = lambda host, port: None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    role_lines: returns a line for each role of the run in a folder.
    on_listening: receives the host and the port.

    Raises UserError for folders with nothing to view, an address that cannot be bound, and a public address
    without a token.
    """
    address.check("the page would show these folders to")
    check_roots(folders)
    host = _ViewHost(Library(folders, role_lines), RequestLog())
    listening = listen(address)
    try:
        on_listening(*listening.getsockname()[:2])
        asyncio.run(server(build_app(host, address.tokens), host).serve([listening]))
    finally:
        listening.close()

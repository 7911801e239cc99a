"""Serves the judge over HTTP until a signal, then finishes the running requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from whetstone.core.errors import did_you_mean
from whetstone.core.http.admission import AdmissionLayer
from whetstone.core.http.refusal import RequestRefused, json_response
from whetstone.core.http.server import listen, server
from whetstone.core.http.settings import Address
from whetstone.judge import Judge
from whetstone.service import endpoints
from whetstone.service.client import JudgeClient
from whetstone.service.compat import evaluate, run_code
from whetstone.service.endpoint_app import EndpointApp, EndpointCall, HttpEndpoint, openapi
from whetstone.service.messages import NodeState
from whetstone.service.service import Service
from whetstone.service.settings import ServiceLimits
from whetstone.service.telemetry import Telemetry


def serve(
    address: Address,
    judge: Judge | JudgeClient,
    workers: int,
    limits: ServiceLimits,
    *,
    nodes: Callable[[], list[NodeState]] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain. A second signal ends the server at once.

    judge, workers, nodes: see ``Service``.

    Raises UserError for an address that cannot be used.
    """
    address.check()
    telemetry = Telemetry()
    service = Service(judge, workers, limits, telemetry, nodes)
    listening = listen(address)
    host, port = listening.getsockname()[:2]
    app = build_app(service, address.tokens)
    about = {"workers": workers, "isolation": judge.isolation, "tokens": len(address.tokens)}
    telemetry.say("listening", host=host, port=port, **about)
    try:
        asyncio.run(server(app, service).serve([listening]))
    finally:
        listening.close()
        telemetry.say("ended")


ENDPOINTS = (*endpoints.ENDPOINTS, *run_code.ENDPOINTS, *evaluate.ENDPOINTS)


def build_app(service: Service, tokens: tuple[str, ...] = ()) -> ASGIApp:
    """Return the application of ``service``. Clients need one of ``tokens``, if there are any."""
    page = openapi(ENDPOINTS)

    async def serve_page(_: EndpointCall) -> Response:
        return json_response(page)

    everything = (*ENDPOINTS, HttpEndpoint("GET", "/openapi.json", serve_page, "This page."))
    return AdmissionLayer(_Routes(everything, service), service, tokens, frozenset({"/"}))


class _Routes:
    """Find the endpoint of a request. No path has a variable part, so a dict is enough."""

    def __init__(self, served: tuple[HttpEndpoint, ...], service: Service) -> None:
        self._paths: dict[str, dict[str, EndpointApp]] = {}
        for endpoint in served:
            self._paths.setdefault(endpoint.path, {})[endpoint.method] = EndpointApp(endpoint, service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI request. Raises RequestRefused for an unknown path or method."""
        path, method = scope["path"], scope["method"]
        methods = self._paths.get(path)
        if methods is None:
            hint = did_you_mean(path[:100], self._paths)
            raise RequestRefused(
                404, "no_such_path", f"there is no {path[:100]}{hint}; /openapi.json lists all endpoints"
            )
        if method not in methods:
            raise RequestRefused(405, "method", f"{path} accepts {' or '.join(methods)}, not {method[:20]}")
        await methods[method](scope, receive, send)

"""Endpoints for health checks, the nodes of a cluster, and metrics."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from starlette.responses import Response

from whetstone.core.http.refusal import RequestRefused, json_response
from whetstone.service.endpoint_app import EndpointCall, HttpEndpoint
from whetstone.service.messages import NodeState


class Health(Struct, frozen=True):
    """``nodes``: the number of nodes of a cluster by their state."""

    status: str = "ok"
    nodes: dict[str, int] = {}


async def ping(call: EndpointCall) -> Response:
    """Serve GET /v1/ping, as SandboxFusion does."""
    return json_response("pong")


async def front(call: EndpointCall) -> Response:
    """Serve GET /, which deployments of ScaleBox use as their health check."""
    return Response(_FRONT, media_type="text/html")


async def alive(call: EndpointCall) -> Response:
    """GET /healthz: this process answers."""
    return json_response(Health(nodes=dict(Counter(node.state for node in call.service.nodes()))))


async def nodes(call: EndpointCall) -> Response:
    """GET /v1/nodes: the state of each node, with the reason if it does not judge."""
    return json_response(call.service.nodes())


async def ready(call: EndpointCall) -> Response:
    """GET /readyz: the server accepts programs, and a worker runs."""
    if call.service.draining:
        raise RequestRefused(503, "draining", "the server is ending and accepts no more programs", 1.0)
    if not call.service.can_judge:
        raise RequestRefused(503, "no_worker", "no judge worker runs at the moment", 1.0)
    return json_response(Health())


async def metrics(call: EndpointCall) -> Response:
    """Serve GET /metrics for Prometheus."""
    return Response(call.service.telemetry.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


_FRONT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="UTF-8"><title>Whetstone judge</title></head>
<body><p>A Whetstone judge. <a href="openapi.json">openapi.json</a> describes its endpoints.</p></body>
</html>
"""

ENDPOINTS = (
    HttpEndpoint("GET", "/", front, "A page that describes the server."),
    HttpEndpoint("GET", "/v1/ping", ping, "Answers pong.", None, str),
    HttpEndpoint("GET", "/healthz", alive, "This process answers.", None, Health),
    HttpEndpoint("GET", "/readyz", ready, "The server accepts programs.", None, Health, refuses=(503,)),
    HttpEndpoint("GET", "/v1/nodes", nodes, "The nodes of a cluster.", None, list[NodeState]),
    HttpEndpoint("GET", "/metrics", metrics, "Numbers for Prometheus."),
)

"""Whether the server lives, may be asked, and how it fares."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from starlette.responses import Response

from whetstone.judge_service.calls import Call, Endpoint
from whetstone.judge_service.cluster.messages import NodeState
from whetstone.judge_service.refusal import Refused, json_response


class Health(Struct, frozen=True):
    """``ok`` where there is nothing else to say. ``nodes``: how many of a cluster are in which state."""

    status: str = "ok"
    nodes: dict[str, int] = {}


async def ping(call: Call) -> Response:
    """GET /v1/ping, as SandboxFusion answers it."""
    return json_response("pong")


async def front(call: Call) -> Response:
    """GET /: deployments of ScaleBox look here for life."""
    return Response(_FRONT, media_type="text/html")


async def alive(call: Call) -> Response:
    """GET /healthz: this process answers."""
    return json_response(Health(nodes=dict(Counter(node.state for node in _nodes(call)))))


async def nodes(call: Call) -> Response:
    """GET /v1/nodes: each by its name, and why one does not judge."""
    return json_response(_nodes(call))


async def ready(call: Call) -> Response:
    """GET /readyz: programs are taken in, and a worker is there to judge them."""
    if call.service.draining:
        raise Refused(503, "draining", "the server is ending: it takes nothing in any more", 1.0)
    if not call.service.judge.worker_pids():
        raise Refused(503, "no_worker", "no judge worker runs at the moment", 1.0)
    return json_response(Health())


async def metrics(call: Call) -> Response:
    """GET /metrics, for Prometheus."""
    return Response(call.service.telemetry.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _nodes(call: Call) -> list[NodeState]:
    return call.service.cluster.nodes() if call.service.cluster is not None else []


_FRONT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="UTF-8"><title>Whetstone judge</title></head>
<body><p>A Whetstone judge. <a href="openapi.json">openapi.json</a> describes its endpoints.</p></body>
</html>
"""

ENDPOINTS = (
    Endpoint("GET", "/", front, "A page that says what this is."),
    Endpoint("GET", "/v1/ping", ping, "Says pong.", None, str),
    Endpoint("GET", "/healthz", alive, "This process answers.", None, Health),
    Endpoint("GET", "/readyz", ready, "Programs are taken in.", None, Health, refuses=(503,)),
    Endpoint("GET", "/v1/nodes", nodes, "The nodes of a cluster.", None, list[NodeState]),
    Endpoint("GET", "/metrics", metrics, "Numbers for Prometheus."),
)

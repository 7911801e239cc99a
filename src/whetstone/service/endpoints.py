"""The judge's own endpoints: programs, problems, health checks and metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from whetstone.core.http.refusal import RequestRefused, json_response
from whetstone.core.http.request_body import requested_deadline
from whetstone.judge import Judgement, Problem
from whetstone.service.endpoint_app import EndpointCall, HttpEndpoint
from whetstone.service.messages import Info, JudgeRequest, NodeState, ProblemReply
from whetstone.service.problem_cache import digest_of, memory_of


async def judge_one(call: EndpointCall) -> Response:
    """Serve POST /v1/judge."""
    request = await call.message(JudgeRequest)
    options, deadline = _options_and_deadline(call, request.options)
    problem = _problem(call, request)
    call.service.gate.admit(call.visit.client, deadline)
    judgement = await call.service.judged(call.visit.client, deadline, problem, request.program, options)
    call.visit.more["verdict"] = judgement.verdict.value
    return json_response(judgement)


async def put_problem(call: EndpointCall) -> Response:
    """Serve PUT /v1/problems."""
    problem = call.service.check(await call.message(Problem))
    # In threads: both take long for a large problem.
    digest = await asyncio.to_thread(digest_of, call.body)
    call.service.known.add(digest, await asyncio.to_thread(memory_of, problem), problem)
    return json_response(ProblemReply(digest))


async def info(call: EndpointCall) -> Response:
    """Serve GET /v1/info."""
    return json_response(call.service.info)


def _problem(call: EndpointCall, request: JudgeRequest) -> Problem:
    if request.problem is not None:
        return call.service.check(request.problem)
    return call.service.check(call.service.known.named(request.problem_sha256 or ""))


def _options_and_deadline(call: EndpointCall, options: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Return the judge's options without the deadline, and the deadline on the loop's clock."""
    request = requested_deadline(call.request, options.get("deadline_s"))
    others = {name: value for name, value in options.items() if name != "deadline_s"}
    return others, call.service.deadline(request)


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
    HttpEndpoint(
        *("POST", "/v1/judge", judge_one, "Judge one program."),
        *(JudgeRequest, Judgement),
        refuses=(404,),
    ),
    HttpEndpoint(
        *("PUT", "/v1/problems", put_problem, "Cache a problem, to be named by the SHA-256 of these bytes."),
        *(Problem, ProblemReply),
    ),
    HttpEndpoint("GET", "/v1/info", info, "Facts about the server, and its limits.", None, Info),
    HttpEndpoint("GET", "/", front, "A page that describes the server."),
    HttpEndpoint("GET", "/v1/ping", ping, "Answers pong.", None, str),
    HttpEndpoint("GET", "/healthz", alive, "This process answers.", None, Health),
    HttpEndpoint("GET", "/readyz", ready, "The server accepts programs.", None, Health, refuses=(503,)),
    HttpEndpoint("GET", "/v1/nodes", nodes, "The nodes of a cluster.", None, list[NodeState]),
    HttpEndpoint("GET", "/metrics", metrics, "Numbers for Prometheus."),
)

"""The judge's own endpoints: a program, a batch as a stream, health checks and metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whetstone.core.http.refusal import RequestRefused, as_json, bad_request, json_response
from whetstone.core.http.request_body import requested_deadline
from whetstone.judge import Judgement, Problem, Program
from whetstone.service.endpoint_app import EndpointCall, HttpEndpoint
from whetstone.service.messages import (
    JSON_LINES,
    BatchRequest,
    Info,
    JudgeRequest,
    NodeState,
    ProblemReply,
    StreamLine,
)
from whetstone.service.problem_cache import digest_of, memory_of

_Emit = Callable[[int, Judgement | RequestRefused], Awaitable[None]]


async def judge_one(call: EndpointCall) -> Response:
    """Serve POST /v1/judge."""
    request = await call.message(JudgeRequest)
    options, deadline = _options_and_deadline(call, request.options)
    problem = _problem(call, request)
    call.service.gate.admit(call.visit.client, deadline)
    judgement = await call.service.judged(call.visit.client, deadline, problem, request.program, options)
    call.visit.more["verdict"] = judgement.verdict.value
    return json_response(judgement)


async def judge_stream(call: EndpointCall) -> Response:
    """Serve POST /v1/judge/stream."""
    jobs, deadline = await _read_jobs(call)
    return _LineResponse(lambda emit: _judge_all(call, jobs, deadline, emit), len(jobs))


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


class _LineResponse(Response):
    """A stream of JSON lines. A slow client delays the programs that it sent."""

    media_type = JSON_LINES

    def __init__(self, work: Callable[[_Emit], Awaitable[None]], count: int) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._work, self._count = work, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines as an ASGI response."""
        sending = asyncio.Lock()

        async def send_line(line: StreamLine, *, more: bool = True) -> None:
            data = as_json(line) + b"\n"
            # Several programs may end at once, and a line must not be split.
            async with sending:
                await send({"type": "http.response.body", "body": data, "more_body": more})

        async def emit(index: int, outcome: Judgement | RequestRefused) -> None:
            if isinstance(outcome, RequestRefused):
                await send_line(StreamLine(index, error=outcome.reply().error))
            else:
                await send_line(StreamLine(index, outcome))

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._work(emit)
        await send_line(StreamLine(done=self._count), more=False)


_Job = tuple[Problem, Program | None, dict[str, Any]]


async def _read_jobs(call: EndpointCall) -> tuple[list[_Job], float]:
    """Return the jobs of a batch, and its deadline. Raises RequestRefused for a wrong or a late batch."""
    batch = await call.message(BatchRequest)
    most = call.service.limits.most_programs
    if len(batch.items) > most:
        raise bad_request(f"{len(batch.items)} programs in one batch; this server takes {most}")
    common_options, deadline = _options_and_deadline(call, batch.options)
    jobs: list[_Job] = []
    for index, item in enumerate(batch.items):
        if "deadline_s" in item.options:
            raise bad_request(
                f"items[{index}]: `deadline_s` is for the whole batch: set it in the options of the batch"
            )
        try:
            jobs.append((_problem(call, item), item.program, {**common_options, **item.options}))
        except RequestRefused as refused:
            raise RequestRefused(refused.status, refused.code, f"items[{index}]: {refused.message}") from None
    call.service.gate.admit(call.visit.client, deadline)
    call.visit.more["programs"] = len(jobs)
    return jobs, deadline


async def _judge_all(call: EndpointCall, jobs: Sequence[_Job], deadline: float, emit: _Emit) -> None:
    """Judge all jobs and ``emit`` each outcome as it arrives.

    An exception of ``emit`` stops the other programs and is raised.
    """
    service, client = call.service, call.visit.client
    numbered = iter(enumerate(jobs))

    async def work() -> None:
        for index, (problem, program, options) in numbered:
            try:
                outcome = await service.judged(client, deadline, problem, program, options)
            except RequestRefused as refused:
                outcome = refused
            await emit(index, outcome)

    try:
        async with asyncio.TaskGroup() as tasks:
            # Only as many jobs wait in the queue as keep all places busy. A batch may have thousands.
            for _ in range(min(2 * service.gate.places, len(jobs))):
                tasks.create_task(work())
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


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
        *("POST", "/v1/judge/stream", judge_stream, "Judge many programs; a line for each as it is judged."),
        *(BatchRequest, StreamLine),
        lines=True,
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

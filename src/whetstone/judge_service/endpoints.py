"""Our own endpoints: programs judged one by one, many at once in their order, or as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from whetstone.judge import Judgement, Problem, Program
from whetstone.judge_service.calls import Call, Endpoint
from whetstone.judge_service.known import digest_of
from whetstone.judge_service.messages import (
    JSON_LINES,
    BatchReply,
    BatchRequest,
    Info,
    JudgeRequest,
    ProblemReply,
    StreamLine,
)
from whetstone.judge_service.refusal import Refused, as_json, bad_request, json_response
from whetstone.judge_service.visiting import asked_deadline

_Emit = Callable[[int, Judgement | Refused], Awaitable[None]]


async def judge_one(call: Call) -> Response:
    """POST /v1/judge."""
    asked = await call.message(JudgeRequest)
    options, deadline = _options_and_deadline(call, asked.options)
    problem = _problem(call, asked)
    call.service.gate.admit(call.visit.client, deadline)
    judgement = await call.service.judged(call.visit.client, deadline, problem, asked.program, options)
    call.visit.more["verdict"] = judgement.verdict.value
    return json_response(judgement)


async def judge_batch(call: Call) -> Response:
    """POST /v1/judge/batch."""
    jobs, deadline = await _jobs(call)
    judged: dict[int, Judgement] = {}

    async def emit(index: int, outcome: Judgement | Refused) -> None:
        if isinstance(outcome, Refused):
            why = f"items[{index}]: {outcome.message}"
            raise Refused(outcome.status, outcome.code, why, outcome.retry_after_s)
        judged[index] = outcome

    await _judge_all(call, jobs, deadline, emit)
    return json_response(BatchReply([judged[index] for index in range(len(jobs))]))


async def judge_stream(call: Call) -> Response:
    """POST /v1/judge/stream."""
    jobs, deadline = await _jobs(call)
    return _Lines(lambda emit: _judge_all(call, jobs, deadline, emit), len(jobs))


async def put_problem(call: Call) -> Response:
    """PUT /v1/problems."""
    problem = call.service.check(await call.message(Problem))
    digest = await asyncio.to_thread(digest_of, call.body)
    call.service.known.add(digest, len(call.body), problem)
    return json_response(ProblemReply(digest))


async def info(call: Call) -> Response:
    """GET /v1/info."""
    return json_response(call.service.info)


class _Lines(Response):
    """Outcomes as lines of JSON, each sent when it is there; a reader who is slow holds them up."""

    media_type = JSON_LINES

    def __init__(self, work: Callable[[_Emit], Awaitable[None]], count: int) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._work, self._count = work, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        one_by_one = asyncio.Lock()

        async def line(line: StreamLine, *, more: bool = True) -> None:
            data = as_json(line) + b"\n"
            async with one_by_one:
                await send({"type": "http.response.body", "body": data, "more_body": more})

        async def emit(index: int, outcome: Judgement | Refused) -> None:
            if isinstance(outcome, Refused):
                await line(StreamLine(index, error=outcome.reply().error))
            else:
                await line(StreamLine(index, outcome))

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._work(emit)
        await line(StreamLine(done=self._count), more=False)


_Job = tuple[Problem, Program | None, dict[str, Any]]


async def _jobs(call: Call) -> tuple[list[_Job], float]:
    """What a batch asks for, and its deadline. Raises Refused, also for one that comes at a bad time."""
    batch = await call.message(BatchRequest)
    most = call.service.limits.most_programs
    if len(batch.items) > most:
        raise bad_request(f"{len(batch.items)} programs in one batch; this server takes {most}")
    common, deadline = _options_and_deadline(call, batch.options)
    jobs: list[_Job] = []
    for index, item in enumerate(batch.items):
        if "deadline_s" in item.options:
            raise bad_request(f"items[{index}]: `deadline_s` is the batch's: it belongs beside `items`")
        try:
            jobs.append((_problem(call, item), item.program, {**common, **item.options}))
        except Refused as refused:
            raise Refused(refused.status, refused.code, f"items[{index}]: {refused.message}") from None
    call.service.gate.admit(call.visit.client, deadline)
    call.visit.more["programs"] = len(jobs)
    return jobs, deadline


async def _judge_all(call: Call, jobs: Sequence[_Job], deadline: float, emit: _Emit) -> None:
    """Judge all and ``emit`` each outcome as it comes; only a window of them waits in the gate's line.

    Raises what ``emit`` does first; the programs that are left are then stopped.
    """
    service, client = call.service, call.visit.client
    numbered = iter(enumerate(jobs))

    async def work() -> None:
        for index, (problem, program, options) in numbered:
            try:
                outcome = await service.judged(client, deadline, problem, program, options)
            except Refused as refused:
                outcome = refused
            await emit(index, outcome)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(2 * service.gate.places, len(jobs))):
                tasks.create_task(work())
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


def _problem(call: Call, asked: JudgeRequest) -> Problem:
    if asked.problem is not None:
        return call.service.check(asked.problem)
    return call.service.check(call.service.known.named(asked.problem_sha256 or ""))


def _options_and_deadline(call: Call, options: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """The judge's options without the deadline, and when the request must be answered."""
    asked = asked_deadline(call.request, options.get("deadline_s"))
    others = {name: value for name, value in options.items() if name != "deadline_s"}
    return others, call.service.deadline(asked)


ENDPOINTS = (
    Endpoint(
        *("POST", "/v1/judge", judge_one, "Judge one program."),
        *(JudgeRequest, Judgement),
        refuses=(404,),
    ),
    Endpoint(
        *("POST", "/v1/judge/batch", judge_batch, "Judge many programs; judgements in input order."),
        *(BatchRequest, BatchReply),
        refuses=(404,),
    ),
    Endpoint(
        *("POST", "/v1/judge/stream", judge_stream, "Judge many programs; a line for each as it is judged."),
        *(BatchRequest, StreamLine),
        lines=True,
        refuses=(404,),
    ),
    Endpoint(
        *("PUT", "/v1/problems", put_problem, "Keep a problem, to be named by the SHA-256 of these bytes."),
        *(Problem, ProblemReply),
    ),
    Endpoint("GET", "/v1/info", info, "What serves here, and within which limits.", None, Info),
)

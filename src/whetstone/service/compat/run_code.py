"""POST /run_code: run a program."""

from __future__ import annotations

from typing import Literal

from starlette.responses import Response

from whetstone.core.errors import UserError
from whetstone.core.http.refusal import RequestRefused, bad_request, json_response
from whetstone.core.http.request_body import requested_deadline
from whetstone.judge.languages.table import language_named
from whetstone.judge.workers.wire import CommandResult, RunReply, RunTask
from whetstone.sandbox import EndReason
from whetstone.service.compat.schemas import (
    CommandRunResult,
    RunCodeRequest,
    RunCodeResponse,
)
from whetstone.service.endpoint_app import EndpointCall, HttpEndpoint

_DEFAULT_MEMORY_MB = 1024
_OUTPUT_BYTES = 16 << 20
# The time for the queue and a compiler, in addition to the time of the program.
_ANSWER_SLACK_S = 600.0
_TIME_LIMITS = frozenset({EndReason.CPU_LIMIT.value, EndReason.WALL_LIMIT.value})
_LIMIT_TEXTS = {
    EndReason.MEMORY_LIMIT.value: "used more memory than allowed",
    EndReason.OUTPUT_LIMIT.value: "wrote more than allowed",
    EndReason.PROCESS_LIMIT.value: "started more processes than allowed",
}


async def run_code(call: EndpointCall) -> Response:
    """Serve POST /run_code."""
    request = await call.message(RunCodeRequest)
    ran = await _run(call, request)
    compiled, run = _command_result(ran.compiled), _command_result(ran.run)
    succeeded = all(
        each is None or (each.status, each.return_code) == ("Finished", 0) for each in (compiled, run)
    )
    status = "Success" if succeeded else "Failed"
    return json_response(RunCodeResponse(status, "", compiled, run))


async def _run(call: EndpointCall, request: RunCodeRequest) -> RunReply:
    """Run a program as soon as there is a place. Raises RequestRefused."""
    service = call.service
    if request.files or request.fetch_files:
        raise RequestRefused(
            *(501, "not_served"),
            "files and fetch_files are not served: send data in `stdin` or in the program, and print results",
        )
    memory_mb = request.memory_limit_MB if request.memory_limit_MB > 0 else _DEFAULT_MEMORY_MB
    most = service.limits.most_memory_mb
    if most is not None and memory_mb > most:
        raise bad_request(f"memory_limit_MB is {memory_mb}; this server grants {most:g} at most")
    try:
        language_named(request.language, "the program")
    except UserError as error:
        raise RequestRefused(422, "unknown_language", str(error)) from None
    stdin = (request.stdin or "").encode("utf-8", "surrogatepass")
    task = RunTask(
        *(request.language, request.code, stdin, request.run_timeout),
        *(memory_mb << 20, _OUTPUT_BYTES),
    )
    deadline = service.deadline(requested_deadline(call.request) or request.run_timeout + _ANSWER_SLACK_S)
    service.gate.admit(call.visit.client, deadline)
    ran = await service.run(call.visit.client, deadline, task)
    if ran.wrong:
        raise bad_request(ran.wrong)
    # To verl's client, `SandboxError` is a wrong program. It retries after 504.
    if ran.fault:
        raise RequestRefused(504, "not_run", f"the program could not be run: {ran.fault}", 1.0)
    return ran


def _command_result(result: CommandResult | None) -> CommandRunResult | None:
    if result is None:
        return None
    stderr = result.stderr.decode("utf-8", "replace")
    status: Literal["Finished", "Error", "TimeLimitExceeded"] = "Finished"
    code = result.exit_code
    if result.ended in _TIME_LIMITS:
        status, code = "TimeLimitExceeded", None
    elif result.ended in _LIMIT_TEXTS:
        status, code, stderr = "Error", -9, f"{stderr}\n{_LIMIT_TEXTS[result.ended]}".lstrip()
    elif result.signal is not None:
        code = -result.signal
    stdout = result.stdout.decode("utf-8", "replace")
    return CommandRunResult(status, result.wall_s, code, stdout, stderr, result.cpu_s, result.peak_bytes)


ENDPOINTS = (
    HttpEndpoint(
        *("POST", "/run_code", run_code, "Run a program.", RunCodeRequest, RunCodeResponse),
        refuses=(501,),
        invalid_status=422,
        forwarded=True,
    ),
)

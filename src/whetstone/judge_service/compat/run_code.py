"""POST /run_code and /run_jupyter: programs that are run, with files in and out of their own directory."""

from __future__ import annotations

import asyncio
import base64
import binascii
import posixpath
from collections.abc import Iterable, Mapping
from typing import Literal

from starlette.responses import Response

from whetstone.errors import UserError
from whetstone.judge.languages.table import language_named
from whetstone.judge_service.calls import Call, Endpoint
from whetstone.judge_service.compat.cells import CELLS_FILE, cells_program
from whetstone.judge_service.compat.schemas import (
    CellRunResult,
    CommandRunResult,
    RunCodeRequest,
    RunCodeResponse,
    RunJupyterRequest,
    RunJupyterResponse,
)
from whetstone.judge_service.reading import read_json
from whetstone.judge_service.refusal import Refused, bad_request, json_response, too_late
from whetstone.judge_service.runner.tasks import Ran, RunTask, Step
from whetstone.judge_service.visiting import asked_deadline
from whetstone.sandbox import Ended

_SKIPPED = "IGNORE_THIS_FILE"
_DEFAULT_MEMORY_MB = 1024
_OUTPUT_BYTES = 16 << 20
_MOST_FILES = 1000
_ANSWER_SLACK_S = 600.0
"""Beyond what it may run: for its turn, and for a compiler."""
_TIME = frozenset({Ended.CPU_LIMIT.value, Ended.WALL_LIMIT.value})
_WORDS = {
    Ended.MEMORY_LIMIT.value: "used more memory than allowed",
    Ended.OUTPUT_LIMIT.value: "wrote more than allowed",
    Ended.PROCESS_LIMIT.value: "started more processes than allowed",
}


async def run_code(call: Call) -> Response:
    """POST /run_code."""
    asked = await call.message(RunCodeRequest)
    ran = await _ran(call, asked.language, asked.code, asked.stdin or "", asked.run_timeout, asked)
    compiled, run = _command(ran.compiled), _command(ran.run)
    good = all(each is None or (each.status, each.return_code) == ("Finished", 0) for each in (compiled, run))
    status = "Success" if good else "Failed"
    files = await asyncio.to_thread(_encoded, ran.files) if ran.files else {}
    return json_response(RunCodeResponse(status, "", compiled, run, files=files))


async def run_jupyter(call: Call) -> Response:
    """POST /run_jupyter: the cells run one after the other in one Python process."""
    asked = await call.message(RunJupyterRequest)
    program = cells_program(asked.cells)
    ran = await _ran(call, "python", program, "", asked.total_timeout, asked, CELLS_FILE)
    files = dict(ran.files)
    said = files.pop(CELLS_FILE, b"[]")
    cells = await asyncio.to_thread(_cells, said, len(asked.cells))
    driver = _command(ran.run)
    good = driver is not None and (driver.status, driver.return_code) == ("Finished", 0)
    encoded = await asyncio.to_thread(_encoded, list(files.items()))
    return json_response(
        RunJupyterResponse("Success" if good else "Failed", "", driver, cells, None, encoded)
    )


def _cells(said: bytes, most: int) -> list[CellRunResult]:
    """What the cells gave, as their process wrote it; none where a cell has written something else there."""
    try:
        cells = read_json(said, list[CellRunResult], CELLS_FILE)
    except Refused:
        return []
    return cells if len(cells) <= most else []


async def _ran(
    call: Call,
    language: str,
    source: str,
    stdin: str,
    seconds: float,
    asked: RunCodeRequest | RunJupyterRequest,
    *more: str,
) -> Ran:
    """The program run, once there is a place. Raises Refused."""
    service = call.service
    for field, count in (("files", len(asked.files)), ("fetch_files", len(asked.fetch_files))):
        if count > _MOST_FILES:
            raise bad_request(f"{field}: {count} files; give {_MOST_FILES} at most")
    memory_mb = asked.memory_limit_MB if asked.memory_limit_MB > 0 else _DEFAULT_MEMORY_MB
    most = service.limits.most_memory_mb
    if most is not None and memory_mb > most:
        raise bad_request(f"memory_limit_MB is {memory_mb}; this server grants {most:g} at most")
    try:
        language_named(language, "the program")
    except UserError as error:
        raise Refused(422, "unknown_language", str(error)) from None
    task = RunTask(
        *(language, source, stdin.encode("utf-8", "surrogatepass"), seconds),
        *(memory_mb << 20, _OUTPUT_BYTES),
        await asyncio.to_thread(_decoded, asked.files) if asked.files else [],
        list(dict.fromkeys((*(_own(name) for name in asked.fetch_files), *more))),
    )
    deadline = service.deadline(asked_deadline(call.request) or seconds + _ANSWER_SLACK_S)
    service.gate.admit(call.visit.client, deadline)
    async with service.gate.place(call.visit.client, deadline):
        future = service.runners.submit(task)
        try:
            async with asyncio.timeout_at(deadline):
                ran = await asyncio.wrap_future(future)
        except TimeoutError:
            raise too_late(service.gate.expected_s(call.visit.client)) from None
        finally:
            future.cancel()
    if ran.wrong:
        raise bad_request(ran.wrong)
    if ran.fault:  # `SandboxError` would be a wrong program to verl's client, which tries a 504 again
        raise Refused(504, "not_run", f"the program could not be run: {ran.fault}", 1.0)
    return ran


def _decoded(files: Mapping[str, str | None]) -> list[tuple[str, bytes]]:
    """Files to put into the program's directory. Raises Refused."""
    found: dict[str, bytes] = {}
    for name, data in files.items():
        if _SKIPPED in name or data is None:
            continue
        try:
            found[_own(name)] = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request(f"files: {name[:200]!r} is not base64") from None
    for name in found:
        if any(other.startswith(name + "/") for other in found):
            raise bad_request(f"files: {name[:200]!r} is a file and a folder at once")
    return list(found.items())


def _own(name: str) -> str:
    """A name within the program's own directory. Raises Refused for any other."""
    plain = posixpath.normpath(name)
    inside = name and not plain.startswith(("/", "..")) and plain != "." and name.isprintable()
    if not inside or len(plain) > 1000 or any(len(part) > 200 for part in plain.split("/")):
        raise bad_request(
            f"file {name[:200]!r}: names must lie within the program's own directory, such as data/in.txt"
        )
    return plain


def _encoded(files: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in files}


def _command(step: Step | None) -> CommandRunResult | None:
    if step is None:
        return None
    stderr = step.stderr.decode("utf-8", "replace")
    status: Literal["Finished", "Error", "TimeLimitExceeded"] = "Finished"
    code = step.exit_code
    if step.ended in _TIME:
        status, code = "TimeLimitExceeded", None
    elif step.ended in _WORDS:
        status, code, stderr = "Error", -9, f"{stderr}\n{_WORDS[step.ended]}".lstrip()
    elif step.signal is not None:
        code = -step.signal
    stdout = step.stdout.decode("utf-8", "replace")
    return CommandRunResult(status, step.wall_s, code, stdout, stderr, step.cpu_s, step.peak_bytes)


ENDPOINTS = (
    Endpoint(
        *("POST", "/run_code", run_code, "Run a program.", RunCodeRequest, RunCodeResponse),
        invalid_status=422,
    ),
    Endpoint(
        *("POST", "/run_jupyter", run_jupyter, "Run cells in one Python process."),
        *(RunJupyterRequest, RunJupyterResponse),
        invalid_status=422,
    ),
)

"""POST /run_code and /run_jupyter: run a program, with files to and from its directory."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from starlette.responses import Response

from whetstone.core.errors import UserError
from whetstone.core.http.refusal import RequestRefused, bad_request, json_response
from whetstone.core.http.request_body import requested_deadline
from whetstone.judge.languages.table import language_named
from whetstone.judge.workers.wire import CommandResult, RunReply, RunTask
from whetstone.sandbox import EndReason
from whetstone.service.compat.schemas import (
    CellRunResult,
    CommandRunResult,
    RunCodeRequest,
    RunCodeResponse,
    RunJupyterRequest,
    RunJupyterResponse,
)
from whetstone.service.decoding import read_json
from whetstone.service.endpoint_app import EndpointCall, HttpEndpoint

# SandboxFusion skips files with this in their name.
_SKIPPED = "IGNORE_THIS_FILE"
_DEFAULT_MEMORY_MB = 1024
_OUTPUT_BYTES = 16 << 20
_MOST_FILES = 1000
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
    ran = await _run(call, request.language, request.code, request.stdin or "", request.run_timeout, request)
    compiled, run = _command_result(ran.compiled), _command_result(ran.run)
    succeeded = all(
        each is None or (each.status, each.return_code) == ("Finished", 0) for each in (compiled, run)
    )
    status = "Success" if succeeded else "Failed"
    files = await asyncio.to_thread(_encode_files, ran.files) if ran.files else {}
    return json_response(RunCodeResponse(status, "", compiled, run, files=files))


async def run_jupyter(call: EndpointCall) -> Response:
    """Serve POST /run_jupyter: the cells run in order in one Python process."""
    request = await call.message(RunJupyterRequest)
    program = cells_program(request.cells)
    ran = await _run(call, "python", program, "", request.total_timeout, request, CELLS_FILE)
    files = dict(ran.files)
    output = files.pop(CELLS_FILE, b"[]")
    cells = await asyncio.to_thread(_read_cells, output, len(request.cells))
    driver = _command_result(ran.run)
    succeeded = driver is not None and (driver.status, driver.return_code) == ("Finished", 0)
    encoded = await asyncio.to_thread(_encode_files, list(files.items()))
    return json_response(
        RunJupyterResponse("Success" if succeeded else "Failed", "", driver, cells, None, encoded)
    )


def _read_cells(output: bytes, most: int) -> list[CellRunResult]:
    """Return the results of the cells as their process wrote them; none if a cell overwrote the file."""
    try:
        cells = read_json(output, list[CellRunResult], CELLS_FILE)
    except RequestRefused:
        return []
    return cells if len(cells) <= most else []


async def _run(
    call: EndpointCall,
    language: str,
    source: str,
    stdin: str,
    seconds: float,
    request: RunCodeRequest | RunJupyterRequest,
    *more: str,
) -> RunReply:
    """Run a program as soon as there is a place. Raises RequestRefused."""
    service = call.service
    for field, count in (("files", len(request.files)), ("fetch_files", len(request.fetch_files))):
        if count > _MOST_FILES:
            raise bad_request(f"{field}: {count} files; give {_MOST_FILES} at most")
    memory_mb = request.memory_limit_MB if request.memory_limit_MB > 0 else _DEFAULT_MEMORY_MB
    most = service.limits.most_memory_mb
    if most is not None and memory_mb > most:
        raise bad_request(f"memory_limit_MB is {memory_mb}; this server grants {most:g} at most")
    try:
        language_named(language, "the program")
    except UserError as error:
        raise RequestRefused(422, "unknown_language", str(error)) from None
    task = RunTask(
        *(language, source, stdin.encode("utf-8", "surrogatepass"), seconds),
        *(memory_mb << 20, _OUTPUT_BYTES),
        await asyncio.to_thread(_decode_files, request.files) if request.files else [],
        list(dict.fromkeys((*(_relative_name(name) for name in request.fetch_files), *more))),
    )
    deadline = service.deadline(requested_deadline(call.request) or seconds + _ANSWER_SLACK_S)
    service.gate.admit(call.visit.client, deadline)
    ran = await service.run(call.visit.client, deadline, task)
    if ran.wrong:
        raise bad_request(ran.wrong)
    # To verl's client, `SandboxError` is a wrong program. It retries after 504.
    if ran.fault:
        raise RequestRefused(504, "not_run", f"the program could not be run: {ran.fault}", 1.0)
    return ran


def _decode_files(files: Mapping[str, str | None]) -> list[tuple[str, bytes]]:
    """Return the files for the program's directory, by name. Raises RequestRefused."""
    found: dict[str, bytes] = {}
    for name, data in files.items():
        if _SKIPPED in name or data is None:
            continue
        try:
            found[_relative_name(name)] = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request(f"files: {name[:200]!r} is not base64") from None
    for name in found:
        if any(other.startswith(name + "/") for other in found):
            raise bad_request(f"files: {name[:200]!r} is a file and a folder at once")
    return list(found.items())


def _relative_name(name: str) -> str:
    """Return a normalized name in the program's directory. Raises RequestRefused for any other."""
    plain = posixpath.normpath(name)
    inside = name and not plain.startswith(("/", "..")) and plain != "." and name.isprintable()
    if not inside or len(plain) > 1000 or any(len(part) > 200 for part in plain.split("/")):
        raise bad_request(
            f"file {name[:200]!r}: names must be within the program's own directory, such as data/in.txt"
        )
    return plain


def _encode_files(files: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in files}


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
        invalid_status=422,
        forwarded=True,
    ),
    HttpEndpoint(
        *("POST", "/run_jupyter", run_jupyter, "Run cells in one Python process."),
        *(RunJupyterRequest, RunJupyterResponse),
        invalid_status=422,
        forwarded=True,
    ),
)


CELLS_FILE = ".cells.json"

_DRIVER = """
import ast, contextlib, io, json, sys, traceback

def _cell(source, number, scope):
    out, err, display, error = io.StringIO(), io.StringIO(), [], []
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            tree = ast.parse(source, f"<cell {number}>")
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"<cell {number}>", "exec"), scope)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), scope)
                if value is not None:
                    display.append({"text/plain": repr(value)})
        except BaseException as reason:
            lines = traceback.format_exception(type(reason), reason, reason.__traceback__.tb_next)
            error.append({"ename": type(reason).__name__, "evalue": str(reason), "traceback": lines})
    return {"stdout": out.getvalue(), "stderr": err.getvalue(), "display": display, "error": error}

def _main(cells):
    scope = {"__name__": "__main__", "__builtins__": __builtins__}
    done = []
    for number, source in enumerate(cells, 1):
        done.append(_cell(source, number, scope))
    with open(".cells.json", "w") as file:
        json.dump(done, file)

_main(json.loads(CELLS))
"""


def cells_program(cells: Sequence[str]) -> str:
    """Return a program that runs ``cells`` in order, also after an error, and writes ``CELLS_FILE``."""
    return f"CELLS = {json.dumps(list(cells))!r}\n{_DRIVER}"

"""Run a program once without judging it, in the sandboxes of a worker, and return files that it wrote."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from whetstone.core.errors import UserError
from whetstone.core.problem import Program
from whetstone.judge.languages.runnable import CompileFailure, Runnable, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import check_tier, require
from whetstone.judge.options import HASH_SEED
from whetstone.judge.outcome import starved
from whetstone.judge.rpc.kept_files import ABSENT, SIZE
from whetstone.judge.sandboxes import SandboxRole, SandboxSet
from whetstone.judge.workers.wire import CommandResult, RunReply, RunTask
from whetstone.sandbox import EndReason, RunLimits, RunResult, SandboxFault, SandboxJob, Tier
from whetstone.sandbox.execute import NotExecuted, execution_error

_FILES_BYTES = 64 << 20
_REFUSED = "refused"


def run_once(sandboxes: SandboxSet, task: RunTask) -> RunReply:
    """Run a task and return its result. A wrong task or a failed sandbox is part of the result."""
    sandboxes.hash_seed = HASH_SEED
    try:
        return _run(sandboxes, task)
    except UserError as error:
        return RunReply(wrong=str(error))
    except SandboxFault as error:
        return RunReply(fault=str(error))


def _run(sandboxes: SandboxSet, task: RunTask) -> RunReply:
    language = language_named(task.language, "the program")
    require(language, "the program", sandboxes.environment)
    check_tier(language, sandboxes.tier.label, "the program")
    if task.fetch and language.run and sandboxes.tier is Tier.RESTRICTED:
        return RunReply(wrong="without namespaces, files can only be fetched from Python programs")
    start = time.monotonic()
    runnable = prepare(sandboxes, Program(task.language, task.source))
    compile_s = time.monotonic() - start
    if isinstance(runnable, CompileFailure):
        compiler_output = runnable.reason.encode("utf-8", "replace")
        return RunReply(CommandResult(_REFUSED, 1, None, 0.0, compile_s, 0, b"", compiler_output))
    compiled = CommandResult(EndReason.EXITED, 0, None, 0.0, compile_s, 0, b"", b"") if language.run else None
    # A compiled program does not keep its source in the directory.
    if not language.run and any(name == "main.py" for name, _ in task.files):
        return RunReply(wrong="files: `main.py` is the program itself; give the file another name")
    result = _run_in_sandbox(sandboxes, task, runnable, native=bool(language.run))
    # With `fetch`, the result has files. Only without it can it have the reason why nothing was executed.
    if language.run and not task.fetch and (why := execution_error(result.result)) is not None:
        raise NotExecuted(f"the program could not be executed: {why}")
    if result.ended is EndReason.STARVED:
        return RunReply(compiled, fault=starved("the program", result))
    files = fetched_files(result.result, task.fetch)
    return RunReply(compiled, _command_result(result), files)


def _run_in_sandbox(sandboxes: SandboxSet, task: RunTask, runnable: Runnable, *, native: bool) -> RunResult:
    limits = RunLimits(task.wall_s, task.memory_bytes, task.output_bytes, wall_s=task.wall_s)
    sandbox, job = runnable.job(limits, stdin=task.stdin, files=dict(task.files))
    if task.fetch:
        head, data = _split_payload(job.payload, task, native=native)
        payload = json.dumps({**head, "fetch": task.fetch}).encode() + b"\n" + data
        sandbox = sandboxes.keeping_files(native=native)
        role = SandboxRole.KEEPS_FILES.value
        job = SandboxJob(role, payload, job.limits, task.stdin, result_extra=_FILES_BYTES)
    return sandbox.run(job)


def _split_payload(payload: bytes, task: RunTask, *, native: bool) -> tuple[dict[str, object], bytes]:
    """Return the head and the data of a payload for ``kept_files``, from the payload of an executable or from
    Python source."""
    if native:
        line, _, data = payload.partition(b"\n")
        return json.loads(line), data
    source = task.source.encode("utf-8", "surrogatepass")
    entries = [(name, len(data)) for name, data in task.files]
    head: dict[str, object] = {"argv": [], "environment": {}, "files": entries, "source": len(source)}
    return head, b"".join((source, *(data for _, data in task.files)))


def fetched_files(result: bytes, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return the files of ``names`` that are in a result of ``kept_files``.

    The program can forge the result, or end before it is written. So the names come from the request only,
    and a result whose sizes do not match its length has no files.
    """
    at = SIZE.size * len(names)
    if len(result) < at:
        return []
    sizes = [size for (size,) in SIZE.iter_unpack(result[:at])]
    if at + sum(size for size in sizes if size != ABSENT) != len(result):
        return []
    files: list[tuple[str, bytes]] = []
    for name, size in zip(names, sizes, strict=True):
        if size != ABSENT:
            files.append((name, result[at : at + size]))
            at += size
    return files


def _command_result(result: RunResult) -> CommandResult:
    cost = (result.cpu_s, result.wall_s, result.peak_bytes)
    return CommandResult(result.ended, result.exit_code, result.signal, *cost, result.stdout, result.stderr)

"""Run a program once without judging it, in the sandboxes of a worker."""

from __future__ import annotations

import time

from whetstone.core.errors import UserError
from whetstone.core.problem import Program
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import check_tier, require
from whetstone.judge.options import HASH_SEED
from whetstone.judge.outcome import starved
from whetstone.judge.sandboxes import SandboxSet
from whetstone.judge.workers.wire import CommandResult, RunReply, RunTask
from whetstone.sandbox import EndReason, RunLimits, RunResult, SandboxFault
from whetstone.sandbox.execute import NotExecuted, execution_error

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
    start = time.monotonic()
    runnable = prepare(sandboxes, Program(task.language, task.source))
    compile_s = time.monotonic() - start
    if isinstance(runnable, CompileFailure):
        compiler_output = runnable.reason.encode("utf-8", "replace")
        return RunReply(CommandResult(_REFUSED, 1, None, 0.0, compile_s, 0, b"", compiler_output))
    compiled = CommandResult(EndReason.EXITED, 0, None, 0.0, compile_s, 0, b"", b"") if language.run else None
    limits = RunLimits(task.wall_s, task.memory_bytes, task.output_bytes, wall_s=task.wall_s)
    sandbox, job = runnable.job(limits, stdin=task.stdin)
    result = sandbox.run(job)
    if language.run and (why := execution_error(result.result)) is not None:
        raise NotExecuted(f"the program could not be executed: {why}")
    if result.ended is EndReason.STARVED:
        return RunReply(compiled, fault=starved("the program", result))
    return RunReply(compiled, _command_result(result))


def _command_result(result: RunResult) -> CommandResult:
    cost = (result.cpu_s, result.wall_s, result.peak_bytes)
    return CommandResult(result.ended, result.exit_code, result.signal, *cost, result.stdout, result.stderr)

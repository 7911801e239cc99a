"""A judge worker: a process that owns the sandboxes and judges or runs one program at a time.

``process`` starts it as ``python -m whetstone.judge.workers.main CHANNEL_FD SETUP``; SETUP is a
``wire.Setup`` in JSON. It exits when its parent does: the kernel kills it, and a thread watches the channel.

A program can also run once without being judged, in the same sandboxes.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import closing

import msgspec

from whetstone.core.errors import SandboxUnavailable, UserError
from whetstone.core.problem import Program
from whetstone.core.verdict import MAX_REASON, CaseJudgement, Judgement, Verdict
from whetstone.judge.answers.comparisons import add_comparisons
from whetstone.judge.deadline import DeadlinePassed
from whetstone.judge.environments.environment import PackageEnvironment
from whetstone.judge.judging import JudgingObserver, judge_program
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import check_tier, require
from whetstone.judge.options import HASH_SEED
from whetstone.judge.outcome import starved
from whetstone.judge.sandboxes import SandboxSet
from whetstone.judge.workers.wire import (
    AbandonedReply,
    CaseProgress,
    CommandResult,
    JudgementReply,
    JudgeTask,
    LinkClosed,
    Ready,
    Refusals,
    RunReply,
    RunTask,
    Setup,
    Stop,
    WorkerUnavailable,
    channel_to_parent,
    pack,
    receive,
    send,
    unpack,
)
from whetstone.sandbox import EndReason, RunLimits, RunResult, SandboxFault, SandboxStopped
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


# The shortest time between two progress messages. The pool's timeout is much longer.
PROGRESS_EVERY_S = 1.0
# Each has one to seven fork-servers of about 25 MB.
MAX_OTHER_ENVIRONMENTS = 3


def main(arguments: list[str]) -> int:
    """Serve tasks from the channel until it closes."""
    channel = channel_to_parent(arguments[0])
    try:
        setup = msgspec.json.decode(arguments[1], type=Setup)
        # A message that arrives on the channel during a run interrupts the run: it is the ``stop_fd`` of the
        # sandboxes.
        add_comparisons(setup.comparisons)
        sandboxes = SandboxSet(
            setup.minimum_tier, setup.tier, environment=setup.environment, stop_fd=channel.fileno()
        )
    except UserError as error:  # SandboxUnavailable is one
        send(channel, pack(WorkerUnavailable(str(error))))
        return 0
    with sandboxes, closing(_OtherEnvironments(sandboxes, channel.fileno())) as others:
        try:
            send(channel, pack(Ready(sandboxes.tier.label)))
            _serve(channel, sandboxes, others)
        except LinkClosed:
            pass
    return 0


def _serve(channel: socket.socket, sandboxes: SandboxSet, others: _OtherEnvironments) -> None:
    progress = _Progress(channel)
    while True:
        task = unpack(receive(channel), JudgeTask, RunTask, Stop, DeadlinePassed)
        if not isinstance(task, JudgeTask | RunTask):
            continue  # an interruption that arrived after the answer was sent
        try:
            if isinstance(task, RunTask):
                answer = run_once(sandboxes, task)
            else:
                chosen = others.sandboxes(task.environment) if task.environment else sandboxes
                answer = JudgementReply(
                    judge_program(chosen, task.problem, task.program, task.options, progress, task.refused)
                )
        except SandboxUnavailable as error:
            assert isinstance(task, JudgeTask)
            assert task.environment is not None
            fault = (Verdict.JUDGE_ERROR, [], None, sandboxes.tier.label, str(error)[:MAX_REASON])
            answer = JudgementReply(Judgement(*fault, environment=task.environment.label))
        except SandboxStopped:  # the answer is no longer wanted
            answer = AbandonedReply()
        send(channel, pack(answer))


class _OtherEnvironments:
    """The sandboxes for environments that problems name. Those used last are kept."""

    def __init__(self, usual: SandboxSet, stop_fd: int) -> None:
        self._usual, self._stop_fd = usual, stop_fd
        self._sets: dict[str, SandboxSet] = {}

    def sandboxes(self, environment: PackageEnvironment) -> SandboxSet:
        """Return the sandboxes for an environment, at the tier of the worker. Raises SandboxUnavailable."""
        found = self._sets.pop(environment.label, None)
        if found is None:
            while len(self._sets) >= MAX_OTHER_ENVIRONMENTS:
                self._sets.pop(next(iter(self._sets))).close()
            tier = self._usual.tier
            found = SandboxSet(tier, tier, environment=environment, stop_fd=self._stop_fd)
        self._sets[environment.label] = found
        return found

    def close(self) -> None:
        """End all of them."""
        for sandboxes in self._sets.values():
            sandboxes.close()


class _Progress(JudgingObserver):
    """Reports refused cases to the pool, and at intervals that runs end, so that its timeout starts again."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._message = pack(CaseProgress())
        self._last_report = 0.0

    def on_run_end(self) -> None:
        """Report that a run has ended, unless the last report was recent."""
        now = time.monotonic()
        if now - self._last_report >= PROGRESS_EVERY_S:
            self._last_report = now
            send(self._channel, self._message)

    def on_refused(self, cases: list[CaseJudgement]) -> None:
        """Report refused cases at once, so that they stay refused if this worker dies."""
        send(self._channel, pack(Refusals(cases)))

    def deadline_passed(self) -> DeadlinePassed | None:
        """Read the message with which the pool interrupted the run. Returns None for Stop."""
        message = unpack(receive(self._channel), Stop, DeadlinePassed)
        return message if isinstance(message, DeadlinePassed) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

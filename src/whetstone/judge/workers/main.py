"""A judge worker: a process that owns the sandboxes and judges or runs one program at a time.

``process`` starts it as ``python -m whetstone.judge.workers.main CHANNEL_FD SETUP``; SETUP is a
``wire.Setup`` in JSON. It exits when its parent does: the kernel kills it, and a thread watches the channel.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import closing

import msgspec

from whetstone.core.errors import SandboxUnavailable, UserError
from whetstone.core.verdict import MAX_REASON, CaseJudgement, Judgement, Verdict
from whetstone.judge.answers.comparisons import add_comparisons
from whetstone.judge.deadline import DeadlinePassed
from whetstone.judge.environments.environment import PackageEnvironment
from whetstone.judge.judging import JudgingObserver, judge_program
from whetstone.judge.running import run_once
from whetstone.judge.sandboxes import SandboxSet
from whetstone.judge.workers.wire import (
    AbandonedReply,
    CaseProgress,
    JudgementReply,
    JudgeTask,
    LinkClosed,
    Ready,
    Refusals,
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
from whetstone.sandbox import SandboxStopped

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

"""The client side of a judge worker: starts the process, sends it tasks, interrupts it and ends it."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from whetstone.core.errors import SandboxUnavailable
from whetstone.core.verdict import CaseJudgement, Judgement
from whetstone.judge.workers.wire import (
    AbandonedReply,
    CaseProgress,
    JudgementReply,
    LinkClosed,
    Ready,
    Refusals,
    RunReply,
    Setup,
    Stop,
    WorkerUnavailable,
    pack,
    receive,
    send,
    unpack,
)

START_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 10.0
# The time within which a worker must answer an interruption.
STOP_TIMEOUT_S = 10.0
_MODULE = "whetstone.judge.workers.main"
_SOURCE_ROOT = Path(__file__).resolve().parents[3]
STOP = pack(Stop())


class WorkerProcess:
    """A judge worker and the channel to it. It is a new interpreter, no fork.

    Only one thread uses it. It must outlive the process, because the kernel ends a child together with the
    thread that started it.
    """

    def __init__(self, setup: Setup) -> None:
        """Start it and wait until it serves. Raises SandboxUnavailable, LinkClosed, WireError."""
        self.channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(theirs.fileno()), msgspec.json.encode(setup).decode()],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C must reach only the caller, which then closes the pool
            )
        try:
            answer = unpack(receive(self.channel, START_TIMEOUT_S), Ready, WorkerUnavailable)
        except BaseException:
            self.close()
            raise
        if isinstance(answer, WorkerUnavailable):
            self.close()
            raise SandboxUnavailable(answer.reason)
        self.isolation = answer.isolation

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def hang_up(self) -> None:
        """Close the connection: the child exits, and a thread that waits for its answer gets LinkClosed."""
        try:
            self.channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the child has already exited

    def disown(self) -> None:
        """In a forked process, close our copy of the channel. The parent's child continues."""
        self.channel.close()
        self._process.returncode = 0  # otherwise Popen would wait for a process that is not our child

    def close(self) -> None:
        """End the process."""
        self.hang_up()
        self.channel.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S / 2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def judge(
        self,
        task: bytes,
        run_timeout_s: float,
        wake_fd: int,
        interruption: Callable[[], bytes | None],
        refused: dict[int, CaseJudgement],
    ) -> Judgement | RunReply | None:
        """Let the worker judge or run a packed task. Returns None if it was stopped.

        Refused cases are added to ``refused``, by number, as soon as the worker reports them, so that they
        survive its death. ``run_timeout_s`` limits the silence between two runs of a case. When the eventfd
        ``wake_fd`` is set, ``interruption`` returns a packed Stop or DeadlinePassed to send, or None. Raises
        LinkClosed if the worker died or does not answer, WireError if its messages are malformed. The worker
        must then be closed.
        """
        send(self.channel, task, run_timeout_s)
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        poller.register(wake_fd, select.POLLIN)
        stopping = False
        deadline = time.monotonic() + run_timeout_s
        while True:
            ready = {fd for fd, _ in poller.poll(max(deadline - time.monotonic(), 0.0) * 1000.0)}
            if not ready and time.monotonic() >= deadline:
                raise LinkClosed("no answer before the deadline")
            if wake_fd in ready:
                os.eventfd_read(wake_fd)
                if not stopping and (message := interruption()) is not None:
                    stopping = True
                    send(self.channel, message, STOP_TIMEOUT_S)
                    deadline = time.monotonic() + STOP_TIMEOUT_S
            if self.channel.fileno() in ready:
                answer = unpack(
                    receive(self.channel, run_timeout_s),
                    CaseProgress,
                    Refusals,
                    JudgementReply,
                    RunReply,
                    AbandonedReply,
                )
                if isinstance(answer, Refusals):
                    refused.update((case.index, case) for case in answer.cases)
                elif isinstance(answer, RunReply):
                    return answer
                elif not isinstance(answer, CaseProgress):
                    return answer.judgement if isinstance(answer, JudgementReply) else None
                # Each message shows that the worker is alive, so its timeout starts again.
                if not stopping:
                    deadline = time.monotonic() + run_timeout_s


def _environment() -> dict[str, str]:
    """Return our environment with random hashes: a program that knew them could choose colliding keys.

    With its PYTHONPATH, the worker imports this same package, even if that is not installed.
    """
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(_SOURCE_ROOT), *([inherited] if inherited else [])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "random"}

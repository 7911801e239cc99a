"""A judge worker seen from the process that uses it: starting it, having it judge, stopping it, ending it."""

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

from whetstone.errors import SandboxUnavailable
from whetstone.judge.workers.wire import (
    Abandoned,
    Done,
    LinkClosed,
    Progress,
    Ready,
    Refusals,
    Refused,
    Setup,
    Stop,
    pack,
    receive,
    send,
    unpack,
)
from whetstone.verdict import CaseJudgement, Judgement

START_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 10.0
"""How long a worker may take to answer an interruption."""
_SOURCE_ROOT = Path(__file__).resolve().parents[3]
STOP = pack(Stop())


class WorkerProcess:
    """A worker process and the channel to it. A fresh interpreter, never a fork. One thread uses it."""

    def __init__(self, setup: Setup) -> None:
        """Start it and wait until it serves. Raises SandboxUnavailable, LinkClosed, WireError."""
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "whetstone.judge.workers.main", str(theirs.fileno())),
                    msgspec.json.encode(setup).decode(),
                ],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C is for the caller, who then closes the pool
            )
        try:
            answer = unpack(receive(self._channel, START_TIMEOUT_S), Ready, Refused)
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Refused):
            self.close()
            raise SandboxUnavailable(answer.reason)
        self.isolation = answer.isolation

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def judge(
        self,
        task: bytes,
        run_timeout_s: float,
        wake_fd: int,
        interruption: Callable[[], bytes | None],
        refused: dict[int, CaseJudgement],
    ) -> Judgement | None:
        """Have a packed task judged; None when it was stopped because nobody wants it any more.

        Cases go into ``refused``, by number, as soon as they are, so that this outlasts the worker.
        ``run_timeout_s`` bounds the silence between two runs of a case. When the eventfd ``wake_fd`` is
        set, ``interruption`` is asked for a packed Stop or DeadlinePassed to send. Raises LinkClosed when the
        worker died or fell silent, WireError when it talks nonsense; it must then be closed.
        """
        send(self._channel, task, run_timeout_s)
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
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
                    send(self._channel, message, STOP_TIMEOUT_S)
                    deadline = time.monotonic() + STOP_TIMEOUT_S
            if self._channel.fileno() in ready:
                answer = unpack(receive(self._channel, run_timeout_s), Progress, Refusals, Done, Abandoned)
                if isinstance(answer, Refusals):
                    refused.update((case.index, case) for case in answer.cases)
                elif not isinstance(answer, Progress):
                    return answer.judgement if isinstance(answer, Done) else None
                if not stopping:
                    deadline = time.monotonic() + run_timeout_s

    def hang_up(self) -> None:
        """Make the worker leave, and whoever waits for its answer stop waiting."""
        try:
            self._channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it left already

    def disown(self) -> None:
        """In a forked process: let go of the other one's worker, which goes on."""
        self._channel.close()
        self._process.returncode = 0  # it is no child of ours to wait for

    def close(self) -> None:
        """End the process; it is ours alone."""
        self.hang_up()
        self._channel.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S / 2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """Ours, but with hashes that no program can foresee: it could choose keys that all collide."""
    return {**os.environ, "PYTHONPATH": _python_path(), "PYTHONHASHSEED": "random"}


def _python_path() -> str:
    """Where the worker finds this very package, installed or not."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(_SOURCE_ROOT), *([inherited] if inherited else [])])

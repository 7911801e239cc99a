"""A judge worker: a fresh process that owns the sandboxes and judges one program at a time.

``python -m whetstone.judge.workers.main CHANNEL_FD SETUP``, started by ``process``; SETUP is a ``wire.Setup``
in JSON. It leaves by itself when its parent does: the kernel signals it, and a
thread of its own watches the channel.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time

import msgspec

from whetstone.errors import UserError
from whetstone.judge.answers.comparisons import add_comparisons
from whetstone.judge.boxes import Boxes
from whetstone.judge.judging import Watcher, judge_program
from whetstone.judge.late import DeadlinePassed
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
    Task,
    pack,
    receive,
    send,
    unpack,
)
from whetstone.sandbox import Stopped
from whetstone.verdict import CaseJudgement

_PR_SET_PDEATHSIG = 1
_POLLRDHUP = 0x2000
PROGRESS_EVERY_S = 1.0
"""How often a worker says that it goes on; its pool's patience is far longer."""


def main(arguments: list[str]) -> int:
    """Serve tasks from the channel until it closes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = socket.socket(fileno=int(arguments[0]))
    threading.Thread(target=_leave_with_parent, args=(channel.fileno(),), daemon=True).start()
    try:
        setup = msgspec.json.decode(arguments[1], type=Setup)
        add_comparisons(setup.comparisons)
        boxes = Boxes(setup.minimum_tier, setup.tier, environment=setup.environment, stop_fd=channel.fileno())
    except UserError as error:  # SandboxUnavailable is one
        send(channel, pack(Refused(str(error))))
        return 0
    with boxes:
        try:
            send(channel, pack(Ready(boxes.tier.label)))
            _serve(channel, boxes)
        except LinkClosed:
            pass
    return 0


def _serve(channel: socket.socket, boxes: Boxes) -> None:
    progress = _Progress(channel)
    while True:
        task = unpack(receive(channel), Task, Stop, DeadlinePassed)
        if not isinstance(task, Task):
            continue  # it crossed the answer to what it was to stop
        try:
            answer = Done(
                judge_program(boxes, task.problem, task.program, task.options, progress, task.refused)
            )
        except Stopped:  # nobody wants it any more
            answer = Abandoned()
        send(channel, pack(answer))


class _Progress(Watcher):
    """Tells the other side what was refused, and now and then that runs come to an end: it waits far longer
    for one run."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._message = pack(Progress())
        self._said = 0.0

    def made(self) -> None:
        """A run is over."""
        now = time.monotonic()
        if now - self._said >= PROGRESS_EVERY_S:
            self._said = now
            send(self._channel, self._message)

    def refused(self, cases: list[CaseJudgement]) -> None:
        """These cases are refused, and stay so if this worker dies."""
        send(self._channel, pack(Refusals(cases)))

    def deadline_passed(self) -> DeadlinePassed | None:
        """What the other side says now that it has interrupted the run."""
        message = unpack(receive(self._channel), Stop, DeadlinePassed)
        return message if isinstance(message, DeadlinePassed) else None


def _leave_with_parent(fd: int) -> None:
    """End at once when the channel closes, even in the middle of a program that sleeps."""
    poller = select.poll()
    poller.register(fd, _POLLRDHUP)
    poller.poll()
    # The fork-servers end when their control sockets close, which they do with this process.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

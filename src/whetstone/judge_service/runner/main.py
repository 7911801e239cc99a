"""A runner: a fresh process that owns sandboxes and runs one program at a time.

``python -m whetstone.judge_service.runner.main CHANNEL_FD SETUP``, started by ``pool``; SETUP is the judge
workers' (``judge.workers.wire.Setup``) in JSON. It ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whetstone.errors import UserError
from whetstone.judge.boxes import Boxes
from whetstone.judge.environments.preload import python_profile
from whetstone.judge.languages.runnable import CompileFailure, Runnable, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.languages.toolchains import check_tier, require, toolchain_paths
from whetstone.judge.outcome import starved
from whetstone.judge.workers.wire import LinkClosed, Setup, pack, receive, send, unpack
from whetstone.judge_service.runner.keep import ABSENT, SIZE
from whetstone.judge_service.runner.tasks import Ran, RunTask, Step
from whetstone.problem import Program
from whetstone.sandbox import Ended, Job, Profile, RunLimits, RunResult, Sandbox, SandboxFault, Tier
from whetstone.sandbox.execute import NotExecuted, fault

_PR_SET_PDEATHSIG = 1
_POLLRDHUP = 0x2000
_FILES_BYTES = 64 << 20
_HARNESS = Path(__file__).parent / "keep.py"
_REFUSED = "refused"


def main(arguments: list[str]) -> int:
    """Serve tasks from the channel until it closes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = socket.socket(fileno=int(arguments[0]))
    threading.Thread(target=_leave_with_parent, args=(channel.fileno(),), daemon=True).start()
    setup = msgspec.json.decode(arguments[1], type=Setup)
    with Boxes(setup.minimum_tier, setup.tier, environment=setup.environment) as boxes:
        runner = _Runner(boxes)
        try:
            while True:
                send(channel, pack(runner.ran(unpack(receive(channel), RunTask))))
        except LinkClosed:
            return 0


class _Runner:
    """Runs tasks in the boxes of a judge worker, and in two more that bring files back."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._keeping: dict[bool, Sandbox] = {}

    def ran(self, task: RunTask) -> Ran:
        """What became of ``task``."""
        try:
            return self._ran(task)
        except UserError as error:
            return Ran(wrong=str(error))
        except SandboxFault as error:
            return Ran(fault=str(error))

    def _ran(self, task: RunTask) -> Ran:
        language = language_named(task.language, "the program")
        require(language, "the program", self._boxes.environment)
        check_tier(language, self._boxes.tier.label, "the program")
        if task.fetch and language.run and self._boxes.tier is Tier.RESTRICTED:
            return Ran(wrong="without namespaces, files can only be fetched from Python programs")
        began = time.monotonic()
        runnable = prepare(self._boxes, Program(task.language, task.source))
        took_s = time.monotonic() - began
        if isinstance(runnable, CompileFailure):
            said = runnable.reason.encode("utf-8", "replace")
            return Ran(Step(_REFUSED, 1, None, 0.0, took_s, 0, b"", said))
        compiled = Step(Ended.EXITED, 0, None, 0.0, took_s, 0, b"", b"") if language.run else None
        if not language.run and any(name == "main.py" for name, _ in task.files):
            return Ran(wrong="files: `main.py` is the program itself; give the file another name")
        result = self._result(task, runnable, native=bool(language.run))
        if language.run and not task.fetch and (why := fault(result.result)) is not None:
            raise NotExecuted(f"the program could not be executed: {why}")
        if result.ended is Ended.STARVED:
            return Ran(compiled, fault=starved("the program", result))
        files = fetched_files(result.result, task.fetch)
        return Ran(compiled, _step(result), files)

    def _result(self, task: RunTask, runnable: Runnable, *, native: bool) -> RunResult:
        limits = RunLimits(task.wall_s, task.memory_bytes, task.output_bytes, wall_s=task.wall_s)
        sandbox, job = runnable.job(limits, stdin=task.stdin, files=dict(task.files))
        if task.fetch:
            head, data = _head_and_data(job.payload, task, native=native)
            payload = json.dumps({**head, "fetch": task.fetch}).encode() + b"\n" + data
            sandbox = self._keeper(native=native)
            job = Job("keep", payload, job.limits, task.stdin, result_extra=_FILES_BYTES)
        return sandbox.run(job)

    def _keeper(self, *, native: bool) -> Sandbox:
        if native not in self._keeping:
            profile = python_profile(self._boxes.environment)
            if native:
                profile = Profile("keeping", reads=toolchain_paths(), execute=True, processes=True)
            self._keeping[native] = Sandbox({"keep": _HARNESS}, profile=profile, tier=self._boxes.tier)
        return self._keeping[native]


def _head_and_data(payload: bytes, task: RunTask, *, native: bool) -> tuple[dict[str, object], bytes]:
    """What ``keep`` is told of a job: of an executed one as it was, of Python made here."""
    if native:
        line, _, data = payload.partition(b"\n")
        return json.loads(line), data
    source = task.source.encode("utf-8", "surrogatepass")
    entries = [(name, len(data)) for name, data in task.files]
    head: dict[str, object] = {"argv": [], "environment": {}, "files": entries, "source": len(source)}
    return head, b"".join((source, *(data for _, data in task.files)))


def fetched_files(result: bytes, names: Sequence[str]) -> list[tuple[str, bytes]]:
    """The files in what ``keep`` wrote: those of ``names`` that were there.

    The program can write here whatever it likes, or be ended before anything was written. So names come from
    the request alone, and a result whose sizes do not add up holds no files.
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


def _step(result: RunResult) -> Step:
    cost = (result.cpu_s, result.wall_s, result.peak_bytes)
    return Step(result.ended, result.exit_code, result.signal, *cost, result.stdout, result.stderr)


def _leave_with_parent(fd: int) -> None:
    """End at once when the channel closes, even in the middle of a program."""
    poller = select.poll()
    poller.register(fd, _POLLRDHUP)
    poller.poll()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

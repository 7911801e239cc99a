"""One run seen from outside: its streams, its limits, and what happened in the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Protocol

from whetstone.sandbox.accounting import TreeMeter, parallelism
from whetstone.sandbox.fork_server import ForkServer
from whetstone.sandbox.job import MOST_STARVED, Ended, Job, RunResult, SandboxFault
from whetstone.sandbox.meter import Meter, pid_of
from whetstone.sandbox.starvation import LostTime, Patience, Waited
from whetstone.sandbox.streams import Stream, sealed_file
from whetstone.sandbox.zygote import lockdown, wire

STDERR_BYTES = 64 << 10
TICK_S = 0.010
"""How often a run that lasts is looked at."""
PARTNER_GRACE_S = 0.050
"""How long a run may go on after the end of what it talked to, so that its own end can be seen."""
_FIRST_LOOK_S = 0.020
"""How long it goes unobserved at first: most runs are over by then, even on a busy machine."""
_FILLED_IN_A_SECOND = 4 << 30
"""Bytes of fresh memory that a core can use up."""
_DISK_EVERY_TICKS = 10
_ANSWER_TIMEOUT_S = 60.0
_BESIDE_ONE_FILE = 1 << 20
_ENTRY_BYTES = 1 << 14  # counted for each file or directory, so that their number is bounded as well


class Talk(Protocol):
    """Who talks to a run over its link, in the thread that supervises it."""

    def fileno(self) -> int:
        """Where to wait for what the run says."""
        ...

    def heard(self) -> bool:
        """Take what it has said, without waiting; False when there is no more to talk about."""
        ...


class Run:
    """A started run. ``supervise`` drives it to its end; until then nobody reads its output."""

    def __init__(
        self,
        server: ForkServer,
        job: Job,
        number: int,
        stop_fd: int | None = None,
        lost: LostTime | None = None,
    ) -> None:
        """Send the job. ``supervise`` adds the time that the run waited for a core to ``lost``.

        Raises SandboxFault if the fork-server is gone, KeyError for an unknown harness.
        """
        self.server = server
        self.stop_fd = stop_fd
        self.talk: Talk | None = None
        """To be set before it is supervised."""
        self.lost = lost
        self.ended = False
        job = _raised(job, server.loaded_bytes)
        self._limits = job.limits
        self._number = number
        self._why: Ended | None = None
        self._meter: TreeMeter | None = None
        self._final: tuple[float, int] = (0.0, 0)
        self._asked = self._crowd = False
        self._disk_countdown = _DISK_EVERY_TICKS
        self._status: int | None = None
        server.accounting.begin(job.limits.memory_bytes, server.profile.tmp_bytes)
        self._send(job)
        self._started = time.monotonic()
        self._wall_s = self._started
        wall = 10.0 + 10.0 * self._limits.cpu_s if self._limits.wall_s is None else self._limits.wall_s
        self._patience = Patience(self._started, wall, MOST_STARVED)
        self._pid = -1
        self._answer_deadline: float | None = None
        self._leave_by: float | None = None
        self.next_tick = self._started + min(_FIRST_LOOK_S, wall)

    def _send(self, job: Job) -> None:
        harness = self.server.harness_number(job.harness)
        limits = job.limits
        request = wire.REQUEST.pack(
            wire.RUN,
            self._number,
            harness,
            job.link is not None,
            ceil(limits.cpu_s) + 2,
            limits.memory_bytes,
            len(job.payload),
        )
        given: list[int] = []
        kept: list[int] = []
        try:
            given.append(sealed_file(job.stdin))
            for _ in range(3):
                read, write = os.pipe2(os.O_CLOEXEC)
                kept.append(read)
                given.append(write)
                os.set_blocking(read, False)
                # /dev/stdout opens the pipe anew, as another user than us who made it.
                os.fchmod(write, 0o222)
            link = () if job.link is None else (job.link,)
            payload = self.server.payload
            self.server.send(request, [*given, *link, payload.holding(job.payload)])
            payload.sent()
        except BaseException:
            for fd in kept:
                os.close(fd)
            raise
        finally:
            for fd in given:
                os.close(fd)
        if job.link is not None:
            os.close(job.link)
        cap = limits.output_bytes
        self._stdout = Stream(kept[0], cap)
        self._stderr = Stream(kept[1], cap, keep_last=STDERR_BYTES)
        self._result = Stream(kept[2], cap + job.result_extra)
        self._streams = (self._stdout, self._stderr, self._result)

    @property
    def has_several(self) -> bool:
        """Whether it was seen to have several processes or threads."""
        return self._crowd

    def ends_at_once(self) -> bool:
        """Wait until the first look at it, or a sign to stop; whether the run has ended."""
        if self.server.message_within(self.next_tick - time.monotonic(), self.stop_fd):
            self._on_message()
        return self.ended

    def handlers(self) -> dict[int, Callable[[], bool]]:
        """What to call when a descriptor has something to read; it returns False when it is through.

        At first only messages: what a short run writes is read after its end, all at once.
        """
        found: dict[int, Callable[[], bool]] = {self.server.control.fileno(): self._on_message}
        if self.talk is not None:
            found[self.talk.fileno()] = partial(self._on_talk, self.talk)
        return found

    def _on_talk(self, talk: Talk) -> bool:
        more = talk.heard()
        if not more:
            self._leave_by = time.monotonic() + PARTNER_GRACE_S
            self.next_tick = min(self.next_tick, self._leave_by)
        return more

    def output_handlers(self) -> dict[int, Callable[[], bool]]:
        """The same for what the program writes: for a run that lasts, lest its pipes fill up."""
        return {stream.fd: partial(self._on_output, stream) for stream in self._streams}

    def _on_output(self, stream: Stream) -> bool:
        stream.read()
        if stream.over:
            self.kill(Ended.OUTPUT_LIMIT)
        return stream.open

    def _on_message(self) -> bool:
        message, descriptors = self.server.receive()
        if message[:1] == wire.PIDFD:
            self._pid = pid_of(descriptors[0])
            first = Meter(descriptors[0])
            self.server.accounting.run_is(self._pid)
            self._meter = TreeMeter(first, self.server.accounting, self._limits.memory_bytes)
            self._patience.begun(self._meter.begun())
            if self._why is None:
                self._answer_deadline = None  # it answered: how long the run takes is not its doing
            else:
                self._meter.kill()
            return True
        self._on_report(message)
        return False

    def _on_report(self, message: bytes) -> None:
        _, number, status, cpu_us, peak, confined = wire.REPORT.unpack_from(message)
        if number != self._number:
            raise SandboxFault(f"the fork-server reported run {number} instead of {self._number}")
        if not confined and not self._ended_unbegun(status):
            step = message[wire.REPORT.size :].decode(errors="replace")
            raise SandboxFault(f"a run could not be confined: {step or f'wait status {status:#x}'}")
        self._wall_s = time.monotonic() - self._started
        self._status = status
        self._final = cpu_us / 1e6, peak
        if self._meter is not None:
            self._final = self._meter.final(*self._final)
        for stream in self._streams:
            while stream.open and stream.read():
                pass  # what was still in the pipes
        self.close()
        self.ended = True  # from here on ``result`` is what it will be

    def _ended_unbegun(self, status: int) -> bool:
        """Whether we ended it before its program began; where that took too long, it was our part of it."""
        if self._why is Ended.WALL_LIMIT and _killed(status):
            self._why = Ended.STARVED
        return self._why is Ended.KILLED or (self._why is Ended.STARVED and _killed(status))

    def tick(self, now: float) -> None:
        """Look at the limits, and set when to look next."""
        cpu_before = time.thread_time()
        if self._answer_deadline is not None and now > self._answer_deadline:
            raise SandboxFault("the fork-server did not answer in time")
        patience = self._patience
        patience.late(now, self.next_tick)
        if now >= patience.deadline and patience.over(now, self._waited(), self._begun(now)):
            self.kill(Ended.STARVED if patience.starved else Ended.WALL_LIMIT)
        if self._leave_by is not None and now >= self._leave_by:
            self.kill(Ended.KILLED)
        wait = TICK_S
        if self._meter is None:
            self._measure_unattended()
            self._ask_for_meter()
        elif self._why is None:
            wait = self._measure(self._meter)
        self.next_tick = now + wait if self._why else min(now + wait, max(patience.deadline, now))
        # A run with many maps makes a look expensive. That is no lateness of ours, which would excuse it.
        self.next_tick = max(self.next_tick, now + time.thread_time() - cpu_before)

    def _waited(self) -> Waited:
        """How long it was without a core, as far as its processes that live tell."""
        return Waited(0.0, False) if self._meter is None else self._meter.waited(self._pid)

    def _begun(self, now: float) -> float:
        """When its first process came to be; now, where the fork-server has not yet said which that is."""
        return now if self._meter is None else self._meter.begun()

    def _measure(self, meter: TreeMeter) -> float:
        """Enforce tasks, CPU, memory and disk; the seconds until the next look.

        Tasks first, so that a fork bomb is called one, whatever else it has used by then.
        """
        began = time.monotonic()
        used = meter.read()
        self._crowd |= used.tasks > 1
        self._patience.looked(began, used.cpu_s, meter.held())
        self._patience.delayed(meter.delay_s(), used.cpu_s, several=self._crowd)
        left = self._limits.cpu_s - used.cpu_s
        if used.tasks >= lockdown.MAX_TASKS:
            self.kill(Ended.PROCESS_LIMIT)
        elif left <= 0:
            self.kill(Ended.CPU_LIMIT)
        else:
            left = min(left, self._seconds_to_full(meter))
        if self._disk_is_full():
            self.kill(Ended.OUTPUT_LIMIT)
        looked_s = time.monotonic() - began
        return min(TICK_S, max(left / parallelism(used.tasks), 0.001 + 2 * looked_s))

    def _measure_unattended(self) -> None:
        """Enforce the same while the fork-server has not said which process is the first.

        Among very many it may be long before it gets a core for that.
        """
        used = self.server.accounting.unattended() if self._asked and self._why is None else None
        if used is None:
            return
        if used.tasks >= lockdown.MAX_TASKS:
            self.kill(Ended.PROCESS_LIMIT)
        elif used.cpu_s > self._limits.cpu_s:
            self.kill(Ended.CPU_LIMIT)
        elif used.least_bytes > self._limits.memory_bytes:
            self.kill(Ended.MEMORY_LIMIT)
        if self._why is not None and self.server.accounting.table is not None:
            self.server.accounting.table.kill_all()

    def _seconds_to_full(self, meter: TreeMeter) -> float:
        """Enforce memory; how many CPU seconds the rest will last where it grows as fast as it can."""
        left, loaded = self._limits.memory_bytes - meter.memory_bytes(), self.server.loaded_bytes
        if 0 <= left < loaded:  # it may have let go of what was loaded ahead, and have taken as much
            left = min(left, self._limits.memory_bytes - loaded - meter.unshared_bytes())
        if left < 0:
            self.kill(Ended.MEMORY_LIMIT)
        return left / _FILLED_IN_A_SECOND

    def _disk_is_full(self) -> bool:
        """More in the private directory of a tier without a size-limited mount than that mount would take."""
        if not self.server.directory:
            return False
        self._disk_countdown -= 1
        if self._disk_countdown:
            return False
        self._disk_countdown = _DISK_EVERY_TICKS
        # One file may be as large as that: a program whose write is refused then is to meet its own error.
        return disk_usage(self.server.directory) > self.server.profile.tmp_bytes + _BESIDE_ONE_FILE

    def _ask_for_meter(self) -> None:
        if not self._asked:
            self._asked = True
            self._answer_deadline = self._answer_deadline or time.monotonic() + _ANSWER_TIMEOUT_S
            self.server.send(wire.QUESTION.pack(wire.PIDFD, self._number))

    def kill(self, why: Ended) -> None:
        """End the run for a reason; the first reason counts."""
        if self._why is not None or self.ended:
            return
        self._why = why
        self._answer_deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        if self._meter is not None:
            self._meter.kill()
        else:
            self._ask_for_meter()

    @property
    def lost_s(self) -> float:
        """Seconds that it was ready and had no core, as far as it was looked at."""
        return self._patience.lost_s

    @property
    def killed(self) -> bool:
        """Whether it was ended, or is about to be."""
        return self._why is not None

    @property
    def pid(self) -> int:
        """The process, as this one sees it; -1 until it is known."""
        return self._pid

    def give_up(self) -> None:
        """End the run and its fork-server; what its harness wrote until then is kept: see ``said``."""
        self.server.kill()
        while self._result.open and not self._result.over and self._result.read():
            pass
        self.close()

    def said(self) -> bytes:
        """What its harness has written to its result descriptor so far, also where the run failed."""
        return self._result.bytes()

    def close(self) -> None:
        """Give back every descriptor of the run."""
        for stream in self._streams:
            stream.close()
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def result(self) -> RunResult:
        """What happened; only after its end."""
        assert self._status is not None
        status, (cpu_s, peak) = self._status, self._final
        ended = self._judge_end(status, cpu_s, peak)
        return RunResult(
            ended=ended,
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            cpu_s=cpu_s,
            wall_s=self._wall_s,
            waited_s=self.lost_s,
            peak_bytes=max(peak - self.server.loaded_bytes, 0),
            stdout=self._stdout.bytes(),
            stderr=self._stderr.bytes(),
            result=self._result.bytes(),
        )

    def _judge_end(self, status: int, cpu_s: float, peak: int) -> Ended:
        """The reason, from facts alone: a run that ended by itself just before our kill keeps its own end."""
        if _killed(status) and self._why is not None:
            return self._why
        if cpu_s > self._limits.cpu_s:
            return Ended.CPU_LIMIT
        if peak > self._limits.memory_bytes or self._out_of_memory(status):
            return Ended.MEMORY_LIMIT
        if any(stream.over for stream in self._streams):
            return Ended.OUTPUT_LIMIT
        return Ended.SIGNALED if os.WIFSIGNALED(status) else Ended.EXITED

    def _out_of_memory(self, status: int) -> bool:
        """An uncaught MemoryError: the backstop on address space was hit. (Forging one only loses.)"""
        if not os.WIFEXITED(status) or os.WEXITSTATUS(status) != 1:
            return False
        return self._stderr.bytes().rstrip().rsplit(b"\n", 1)[-1].startswith(b"MemoryError")


def _killed(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9


def _raised(job: Job, loaded_bytes: int) -> Job:
    """The job with room for what the fork-server has loaded ahead, which is none of the program's."""
    if not loaded_bytes:
        return job
    return replace(job, limits=replace(job.limits, memory_bytes=job.limits.memory_bytes + loaded_bytes))


def disk_usage(directory: str) -> int:
    """Bytes on disk beneath a directory, with some for every entry; what vanishes meanwhile counts 0."""
    total, waiting = 0, [directory]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    total += _ENTRY_BYTES + entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue
    return total

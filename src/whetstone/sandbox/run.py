"""One run seen from outside: its streams, its limits, and what happened in the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from math import ceil

from whetstone.sandbox.accounting import TreeMeter, parallelism
from whetstone.sandbox.fork_server import ForkServer
from whetstone.sandbox.job import Ended, Job, RunResult, SandboxFault
from whetstone.sandbox.meter import Meter, pid_of
from whetstone.sandbox.starvation import waited_for_core_s
from whetstone.sandbox.streams import Stream, sealed_file
from whetstone.sandbox.zygote import lockdown, wire

STDERR_BYTES = 64 << 10
TICK_S = 0.010
"""How often a run that lasts is looked at."""
_FIRST_LOOK_S = 0.020
"""How long it goes unobserved at first: most runs are over by then, even on a busy machine."""
MOST_STARVED = 5.0
"""How many times its wall clock limit a run may wait for a core before it is ended nevertheless."""
_DISK_EVERY_TICKS = 10
_ANSWER_TIMEOUT_S = 60.0
_ENTRY_BYTES = 1 << 14  # counted for each file or directory, so that their number is bounded as well


class Run:
    """A started run. ``supervise`` drives it to its end; until then nobody reads its output."""

    def __init__(self, server: ForkServer, job: Job, number: int, stop_fd: int | None = None) -> None:
        """Send the job. Raises SandboxFault if the fork-server is gone, KeyError for an unknown harness."""
        self.server = server
        self.stop_fd = stop_fd
        self.ended = False
        self._limits = job.limits
        self._number = number
        self._why: Ended | None = None
        self._meter: TreeMeter | None = None
        self._final: tuple[float, int] = (0.0, 0)
        self._asked = False
        self._disk_countdown = _DISK_EVERY_TICKS
        self._status: int | None = None
        server.accounting.begin(job.limits.memory_bytes, server.profile.tmp_bytes)
        self._send(job)
        self._started = time.monotonic()
        self._wall_s = self._started
        wall = 10.0 + 10.0 * self._limits.cpu_s if self._limits.wall_s is None else self._limits.wall_s
        self._wall_limit_s = wall
        self._wall_deadline = self._started + wall
        self._pid = -1
        self._answer_deadline: float | None = None
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
                if self.server.profile.execute:
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

    def ends_at_once(self) -> bool:
        """Wait until the first look at it, or a sign to stop; whether the run has ended."""
        if self.server.message_within(self.next_tick - time.monotonic(), self.stop_fd):
            self._on_message()
        return self.ended

    def handlers(self) -> dict[int, Callable[[], bool]]:
        """What to call when a descriptor has something to read; it returns False when it is through.

        At first only messages: what a short run writes is read after its end, all at once.
        """
        return {self.server.control.fileno(): self._on_message}

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
        if not confined and self._why is not Ended.KILLED:
            step = message[wire.REPORT.size :].decode(errors="replace")
            raise SandboxFault(f"a run could not be confined: {step or f'wait status {status:#x}'}")
        self._wall_s = time.monotonic() - self._started
        self._status = status
        self._final = cpu_us / 1e6, peak
        if self._meter is not None:
            self._final = self._meter.final(*self._final)
        self.ended = True
        for stream in self._streams:
            while stream.open and stream.read():
                pass  # what was still in the pipes
        self.close()

    def tick(self, now: float) -> None:
        """Look at the limits, and set when to look next."""
        if self._answer_deadline is not None and now > self._answer_deadline:
            raise SandboxFault("the fork-server did not answer in time")
        if now >= self._wall_deadline and not self._starved(now):
            self.kill(Ended.WALL_LIMIT)
        wait = TICK_S
        if self._meter is None:
            self._ask_for_meter()
        elif self._why is None:
            wait = self._measure(self._meter)
        self.next_tick = now + wait if self._why else min(now + wait, max(self._wall_deadline, now))

    def _starved(self, now: float) -> bool:
        """Whether it has time left when the time in which it waited for a core is taken off."""
        waited = waited_for_core_s(self._pid) if self._pid > 0 else 0.0
        self._wall_deadline = self._started + self._wall_limit_s * (
            1.0 + min(waited / self._wall_limit_s, MOST_STARVED)
        )
        return now < self._wall_deadline

    def _measure(self, meter: TreeMeter) -> float:
        """Enforce CPU, memory, processes and disk; the seconds until the next look."""
        used = meter.read()
        left = self._limits.cpu_s - used.cpu_s
        if left <= 0:
            self.kill(Ended.CPU_LIMIT)
        # Before memory, which a fork bomb uses as well.
        if used.processes >= lockdown.MAX_PROCESSES or used.tasks >= lockdown.MAX_TASKS:
            self.kill(Ended.PROCESS_LIMIT)
        if used.peak_bytes > self._limits.memory_bytes:
            self.kill(Ended.MEMORY_LIMIT)
        if self._disk_is_full():
            self.kill(Ended.OUTPUT_LIMIT)
        return min(TICK_S, max(left / parallelism(used.tasks), 0.001))

    def _disk_is_full(self) -> bool:
        """More in the private directory of a tier without a size-limited mount than that mount would take."""
        if not self.server.directory:
            return False
        self._disk_countdown -= 1
        if self._disk_countdown:
            return False
        self._disk_countdown = _DISK_EVERY_TICKS
        return disk_usage(self.server.directory) > self.server.profile.tmp_bytes

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
            peak_bytes=peak,
            stdout=self._stdout.bytes(),
            stderr=self._stderr.bytes(),
            result=self._result.bytes(),
        )

    def _judge_end(self, status: int, cpu_s: float, peak: int) -> Ended:
        """The reason, from facts alone: a run that ended by itself just before our kill keeps its own end."""
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9
        if killed and self._why is not None:
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

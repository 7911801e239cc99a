"""One run from outside: its streams, its limits, and its result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Protocol

from whetstone.sandbox.accounting import TreeMeter, parallelism
from whetstone.sandbox.cpu_starvation import LostTime, ThreadWait, WallClock
from whetstone.sandbox.fork_server import ForkServer
from whetstone.sandbox.job import MOST_STARVED, EndReason, RunResult, SandboxFault, SandboxJob
from whetstone.sandbox.meter import ProcessMeter, pid_of
from whetstone.sandbox.streams import Stream, sealed_file
from whetstone.sandbox.zygote import lockdown, wire

STDERR_BYTES = 64 << 10
# Interval between readings of a running process.
TICK_S = 0.010
# How long a run may continue after the end of its partner, so that its own end can be observed.
PARTNER_GRACE_S = 0.050
# Time before the first reading. Most runs are over by then, even on a busy machine.
FIRST_READING_S = 0.020
# Bytes of fresh memory that a core can fill in a second.
_FILL_BYTES_PER_S = 4 << 30
_DISK_EVERY_TICKS = 10
# A machine with thousands of busy processes may give the fork-server no core for long.
_ANSWER_TIMEOUT_S = 60.0
_DISK_TOLERANCE = 1 << 20
_ENTRY_BYTES = 1 << 14  # counted for each file or directory, so that their number is bounded too


class RunPeer(Protocol):
    """The supervisor's end of a run's link."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the run sends something."""
        ...

    def receive(self) -> bool:
        """Read what the run has sent, without waiting. Returns False when the conversation is over."""
        ...


class SandboxRun:
    """A started run. ``supervise`` drives it to its end. Until then no thread reads its output."""

    def __init__(
        self,
        server: ForkServer,
        job: SandboxJob,
        number: int,
        stop_fd: int | None = None,
        lost: LostTime | None = None,
    ) -> None:
        """Send the job. ``supervise`` adds the time that the run waited for a core to ``lost``.

        Raises SandboxFault if the fork-server is gone, and KeyError for an unknown harness.
        """
        self.server = server
        self.stop_fd = stop_fd
        # The judge sets it before the run is supervised.
        self.talk: RunPeer | None = None
        self.lost = lost
        self.ended = False
        if server.loaded_bytes:  # the packages that the fork-server has preloaded are no memory of the run
            memory_bytes = job.limits.memory_bytes + server.loaded_bytes
            job = replace(job, limits=replace(job.limits, memory_bytes=memory_bytes))
        self._limits = job.limits
        self._number = number
        self._kill_reason: EndReason | None = None
        self._meter: TreeMeter | None = None
        self._final_usage: tuple[float, int] = (0.0, 0)
        self._meter_requested = self._has_several = False
        self._disk_countdown = _DISK_EVERY_TICKS
        self._status: int | None = None
        server.accounting.begin(job.limits.memory_bytes, server.profile.tmp_bytes)
        self._send(job)
        self._started = time.monotonic()
        self._wall_s = self._started
        wall = 10.0 + 10.0 * self._limits.cpu_s if self._limits.wall_s is None else self._limits.wall_s
        self._wall_clock = WallClock(self._started, wall, MOST_STARVED)
        self._pid = -1
        self._answer_deadline: float | None = None
        self._exit_deadline: float | None = None
        self.next_tick = self._started + min(FIRST_READING_S, wall)

    def _send(self, job: SandboxJob) -> None:
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
        sent: list[int] = []
        read_ends: list[int] = []
        try:
            sent.append(sealed_file(job.stdin))
            for _ in range(3):
                read, write = os.pipe2(os.O_CLOEXEC)
                read_ends.append(read)
                sent.append(write)
                os.set_blocking(read, False)
                # /dev/stdout opens the pipe again, as another user than the one who made it.
                os.fchmod(write, 0o222)
            link = () if job.link is None else (job.link,)
            payload = self.server.payload
            self.server.send(request, [*sent, *link, payload.descriptor_of(job.payload)])
            payload.release_large()
        except BaseException:
            for fd in read_ends:
                os.close(fd)
            raise
        finally:
            for fd in sent:
                os.close(fd)
        if job.link is not None:
            os.close(job.link)
        cap = limits.output_bytes
        self._stdout = Stream(read_ends[0], cap)
        self._stderr = Stream(read_ends[1], cap, keep_last=STDERR_BYTES)
        self._result = Stream(read_ends[2], cap + job.result_extra)
        self._streams = (self._stdout, self._stderr, self._result)

    @property
    def supervised(self) -> bool:
        """Whether there is more to supervise now."""
        return not self.ended

    @property
    def has_several(self) -> bool:
        """Whether several processes or threads were observed."""
        return self._has_several

    def wait_for_first_reading(self) -> bool:
        """Wait until the first reading or a stop signal. Returns whether the run has ended."""
        if self.server.message_within(self.next_tick - time.monotonic(), self.stop_fd):
            self._on_message()
        return self.ended

    def handlers(self) -> dict[int, Callable[[], bool]]:
        """Return callbacks for readable descriptors. A callback returns False when its descriptor is
        finished.

        At first these are messages only. The output of a short run is read after its end, all at once.
        """
        found: dict[int, Callable[[], bool]] = {self.server.control.fileno(): self._on_message}
        if self.talk is not None:
            found[self.talk.fileno()] = partial(self._on_link, self.talk)
        return found

    def _on_link(self, peer: RunPeer) -> bool:
        more = peer.receive()
        if not more:
            self._exit_deadline = time.monotonic() + PARTNER_GRACE_S
            self.next_tick = min(self.next_tick, self._exit_deadline)
        return more

    def output_handlers(self) -> dict[int, Callable[[], bool]]:
        """Return callbacks for the output of a longer run, so that its pipes do not fill up."""
        return {stream.fd: partial(self._on_output, stream) for stream in self._streams if stream.open}

    def _on_output(self, stream: Stream) -> bool:
        stream.read()
        if stream.is_over:
            self.kill(EndReason.OUTPUT_LIMIT)
        return stream.open

    def _on_message(self) -> bool:
        message, descriptors = self.server.receive()
        if message[:1] == wire.PIDFD:
            self._pid = pid_of(descriptors[0])
            first = ProcessMeter(descriptors[0])
            self.server.accounting.set_first_process(self._pid)
            self._meter = TreeMeter(first, self.server.accounting, self._limits.memory_bytes)
            self._wall_clock.record_start(self._meter.start_time())
            if self._kill_reason is None:
                self._answer_deadline = (
                    None  # the fork-server answered; a long run after that is not its fault
                )
            else:
                self._meter.kill()
            return True
        self._on_report(message)
        return False

    def _on_report(self, message: bytes) -> None:
        _, number, status, cpu_us, peak, confined = wire.REPORT.unpack_from(message)
        if number != self._number:
            raise SandboxFault(f"the fork-server reported run {number} instead of {self._number}")
        if not confined and not self._ended_before_start(status):
            step = message[wire.REPORT.size :].decode(errors="replace")
            raise SandboxFault(f"a run could not be confined: {step or f'wait status {status:#x}'}")
        self._wall_s = time.monotonic() - self._started
        self._status = status
        self._final_usage = cpu_us / 1e6, peak
        if self._meter is not None:
            self._final_usage = self._meter.final_usage(*self._final_usage)
        for stream in self._streams:
            while stream.open and stream.read():
                pass  # the rest of the output is still in the pipes
        self.close()
        self.ended = True  # from here on ``result`` is final

    def _ended_before_start(self, status: int) -> bool:
        """Return whether the run was ended before its program started. If the start took too long, the
        sandbox is at fault. A memory limit below what the interpreter needs can end the start."""
        if self._kill_reason is EndReason.WALL_LIMIT and _was_killed(status):
            self._kill_reason = EndReason.STARVED
        return self._kill_reason is EndReason.KILLED or (
            self._kill_reason in (EndReason.STARVED, EndReason.MEMORY_LIMIT) and _was_killed(status)
        )

    def tick(self, now: float) -> None:
        """Enforce the limits, and set the time of the next reading."""
        cpu_before = time.thread_time()
        if self._answer_deadline is not None and now > self._answer_deadline:
            raise SandboxFault("the fork-server did not answer in time")
        wall_clock = self._wall_clock
        wall_clock.record_lateness(now, self.next_tick)
        if now >= wall_clock.deadline:
            # A first process that the fork-server has not reported yet counts as started now.
            start_time = now if self._meter is None else self._meter.start_time()
            if wall_clock.is_over(now, self._longest_wait(), start_time):
                self.kill(EndReason.STARVED if wall_clock.starved else EndReason.WALL_LIMIT)
        if self._exit_deadline is not None and now >= self._exit_deadline:
            self.kill(EndReason.KILLED)
        wait = TICK_S
        if self._meter is None:
            self._measure_without_meter()
            self._ask_for_meter()
        elif self._kill_reason is None:
            wait = self._measure(self._meter)
        self.next_tick = now + wait if self._kill_reason else min(now + wait, max(wall_clock.deadline, now))
        # Many memory maps make a reading expensive. That is not lateness of the supervisor, which would
        # excuse the run.
        self.next_tick = max(self.next_tick, now + time.thread_time() - cpu_before)

    def _longest_wait(self) -> ThreadWait:
        """Return how long the run had no core, as far as its living processes show."""
        return ThreadWait(0.0, False) if self._meter is None else self._meter.longest_wait(self._pid)

    def _measure(self, meter: TreeMeter) -> float:
        """Enforce tasks, CPU, memory and disk. Returns the seconds until the next reading.

        Tasks come first, so that a fork bomb is reported as one, whatever else it has used by then.
        """
        began = time.monotonic()
        used = meter.read()
        self._has_several |= used.tasks > 1
        self._wall_clock.record_usage(began, used.cpu_s, meter.stall())
        self._wall_clock.record_delay(meter.delay_s(), used.cpu_s, several=self._has_several)
        left = self._limits.cpu_s - used.cpu_s
        if used.tasks >= lockdown.MAX_TASKS:
            self.kill(EndReason.PROCESS_LIMIT)
        elif left <= 0:
            self.kill(EndReason.CPU_LIMIT)
        else:
            left = min(left, self._seconds_to_full(meter))
        if self._disk_is_full():
            self.kill(EndReason.OUTPUT_LIMIT)
        reading_s = time.monotonic() - began
        return min(TICK_S, max(left / parallelism(used.tasks), 0.001 + 2 * reading_s))

    def _measure_without_meter(self) -> None:
        """Enforce the same limits while the fork-server has not reported the first process.

        With very many processes, it may wait long for a core before it can.
        """
        used = (
            self.server.accounting.usage_without_first()
            if self._meter_requested and self._kill_reason is None
            else None
        )
        if used is None:
            return
        if used.tasks >= lockdown.MAX_TASKS:
            self.kill(EndReason.PROCESS_LIMIT)
        elif used.cpu_s > self._limits.cpu_s:
            self.kill(EndReason.CPU_LIMIT)
        elif used.least_bytes > self._limits.memory_bytes:
            self.kill(EndReason.MEMORY_LIMIT)
        if self._kill_reason is not None and self.server.accounting.table is not None:
            self.server.accounting.table.kill_all()

    def _seconds_to_full(self, meter: TreeMeter) -> float:
        """Enforce memory. Returns the CPU seconds until the limit at the fastest possible growth."""
        left, loaded = self._limits.memory_bytes - meter.memory_bytes(), self.server.loaded_bytes
        if 0 <= left < loaded:  # it may have released preloaded memory and have taken as much
            left = min(left, self._limits.memory_bytes - loaded - meter.unshared_bytes())
        if left < 0:
            self.kill(EndReason.MEMORY_LIMIT)
        return left / _FILL_BYTES_PER_S

    def _disk_is_full(self) -> bool:
        """Return whether the private directory exceeds the limit, on a tier without a size-limited mount."""
        if not self.server.directory:
            return False
        self._disk_countdown -= 1
        if self._disk_countdown:
            return False
        self._disk_countdown = _DISK_EVERY_TICKS
        # One file may have this size: the program whose write fails must see its own error.
        return disk_usage(self.server.directory) > self.server.profile.tmp_bytes + _DISK_TOLERANCE

    def _ask_for_meter(self) -> None:
        if not self._meter_requested:
            self._meter_requested = True
            self._answer_deadline = self._answer_deadline or time.monotonic() + _ANSWER_TIMEOUT_S
            self.server.send(wire.QUESTION.pack(wire.PIDFD, self._number))

    def kill(self, reason: EndReason) -> None:
        """End the run for a reason. The first reason counts."""
        if self._kill_reason is not None or self.ended:
            return
        self._kill_reason = reason
        self._answer_deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        if self._meter is not None:
            self._meter.kill()
        else:
            self._ask_for_meter()

    @property
    def lost_s(self) -> float:
        """Seconds in which it was ready and had no core, as far as observed."""
        return self._wall_clock.lost_s

    @property
    def killed(self) -> bool:
        """Whether it was ended, or is about to be."""
        return self._kill_reason is not None

    @property
    def pid(self) -> int:
        """The process id in this namespace; -1 until it is known."""
        return self._pid

    def abandon(self) -> None:
        """End the run and its fork-server. The output of its harness until then is kept: see
        ``harness_output``."""
        self.server.kill()
        while self._result.open and not self._result.is_over and self._result.read():
            pass
        self.close()

    def harness_output(self) -> bytes:
        """Return what its harness has written to its result descriptor so far, even if the run failed."""
        return self._result.bytes()

    def close(self) -> None:
        """Close every descriptor of the run."""
        for stream in self._streams:
            stream.close()
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def result(self) -> RunResult:
        """Return the result. Valid only after the end of the run."""
        assert self._status is not None
        status, (cpu_s, peak) = self._status, self._final_usage
        ended = self._end_reason(status, cpu_s, peak)
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

    def _end_reason(self, status: int, cpu_s: float, peak: int) -> EndReason:
        """Return the reason of the end, from the kernel's report. A run that ended by itself just before the
        kill keeps its own end."""
        if _was_killed(status) and self._kill_reason is not None:
            return self._kill_reason
        if cpu_s > self._limits.cpu_s:
            return EndReason.CPU_LIMIT
        if peak > self._limits.memory_bytes or self._out_of_memory(status):
            return EndReason.MEMORY_LIMIT
        if any(stream.is_over for stream in self._streams):
            return EndReason.OUTPUT_LIMIT
        return EndReason.SIGNALED if os.WIFSIGNALED(status) else EndReason.EXITED

    def _out_of_memory(self, status: int) -> bool:
        """Return whether an uncaught MemoryError ended the run, at the address space limit. A program that
        forges one only loses."""
        if not os.WIFEXITED(status) or os.WEXITSTATUS(status) != 1:
            return False
        return self._stderr.bytes().rstrip().rsplit(b"\n", 1)[-1].startswith(b"MemoryError")


def _was_killed(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9


def disk_usage(directory: str) -> int:
    """Return the bytes on disk below a directory, plus a fixed amount for every entry. Files that disappear
    count 0."""
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

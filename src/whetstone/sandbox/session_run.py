"""A session from outside: calls, limits, output. For asyncio see ``whetstone.sandbox.session``."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from enum import StrEnum

from whetstone.sandbox.accounting import TreeMeter
from whetstone.sandbox.cpu_starvation import ThreadWait, WallClock
from whetstone.sandbox.job import MOST_STARVED, EndReason, RunResult, SandboxFault
from whetstone.sandbox.run import FIRST_READING_S, TICK_S, SandboxRun
from whetstone.sandbox.stopping import continue_all, stop_all
from whetstone.sandbox.streams import Stream
from whetstone.sandbox.supervision import drive, partner_grace, supervisor_priority
from whetstone.sandbox.zygote.run_session import ANSWER, CALL, DONE, ERROR

# The longest source of a call. It must fit into the buffer of a socket, because sending it does not wait.
MOST_SOURCE_BYTES = 128 << 10
_SEND_BUFFER_BYTES = 4 * MOST_SOURCE_BYTES
_CLOSED = "it was closed"
_START_TIMEOUT_S = 60.0
# How long processes that get no core may take to stop.
_STOP_TIMEOUT_S = 10.0
_SHORTEST_WAIT_S = 0.0002


@dataclass(frozen=True)
class SessionLimits:
    """Limits of a session, over all its processes and threads together. A call beyond a limit ends it.

    ``cpu_s``, ``wall_s`` and ``output_bytes`` limit each call, ``total_cpu_s`` all calls together.
    ``memory_bytes`` limits resident memory. CPU time decides; wall time is a generous backstop. Time between
    calls does not count. ``text_bytes`` ends nothing: a result shows the beginning and the end of longer
    output.
    """

    cpu_s: float = 5.0
    total_cpu_s: float = 60.0
    memory_bytes: int = 512 << 20
    output_bytes: int = 16 << 20
    text_bytes: int = 16 << 10
    wall_s: float | None = None
    """None: ten times ``cpu_s`` plus 10 s."""

    def __post_init__(self) -> None:
        """Raise ValueError for a limit that is not positive."""
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                raise ValueError(f"the limit {name} of a session is {value}; give a positive number")

    @property
    def call_wall_s(self) -> float:
        """Wall seconds of one call."""
        return 10.0 + 10.0 * self.cpu_s if self.wall_s is None else self.wall_s


class CallEnd(StrEnum):
    """Why a call ended. The session continues after DONE and ERROR."""

    DONE = "done"
    ERROR = "error"
    """The code raised an exception, or does not compile."""
    CPU_LIMIT = "cpu_limit"
    WALL_LIMIT = "wall_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    """Too much output; on tier RESTRICTED also too many bytes in files."""
    PROCESS_LIMIT = "process_limit"
    EXITED = "exited"
    """The process exited or crashed, or closed its connection."""
    SESSION_ENDED = "session_ended"
    """The session had ended before, or was closed meanwhile."""


@dataclass(frozen=True)
class SessionResult:
    """The result of a call.

    ``text`` is what the program wrote, as data. If the session has ended, the last line says why. ``alive``:
    whether the session can run another call. ``cpu_s``: CPU seconds since the end of the previous call.
    """

    text: str
    ended: CallEnd
    alive: bool
    cpu_s: float


class _CallOutput(Stream):
    """The output of one call after another: of each, the beginning and the end."""

    def __init__(self, fd: int, cap: int, text_bytes: int) -> None:
        super().__init__(fd, cap)
        self._half = (text_bytes + 1) // 2
        self._tail = bytearray()

    def _keep(self, chunk: bytes) -> None:
        room = self._half - len(self._kept)
        self._kept += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def take(self) -> str:
        """Return the text of this call, and begin with the next one."""
        tail = self._tail[-self._half :]
        omitted = self._total - len(self._kept) - len(tail)
        mark = b"\n[... %d bytes of output omitted ...]\n" % omitted if omitted else b""
        text = b"".join((self._kept, mark, tail)).decode("utf-8", "replace")
        self._kept, self._tail, self._total = bytearray(), bytearray(), 0
        return text


class _Connection:
    """The client's end of a session's link.

    The program can write to it what its harness writes. So an answer only tells where the text of a call
    ends, and whether it shows an error. Everything else ends the conversation.
    """

    def __init__(self, link: socket.socket) -> None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        link.setblocking(False)
        self._link = link
        self._call = 0
        self._received = b""
        self.answer: int | None = None
        """DONE or ERROR, once the process has answered."""

    def send(self, source: bytes) -> bool:
        """Send the next call. Returns False if the process has not read the previous one."""
        self._call += 1
        self._received, self.answer = b"", None
        message = CALL.pack(self._call, len(source)) + source
        try:
            return self._link.send(message) == len(message)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the process has ended or closed its end: ``receive`` or the report will tell

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the process sends something."""
        return self._link.fileno()

    def receive(self) -> bool:
        """Read a part of the answer. Returns False if it is none."""
        try:
            part = self._link.recv(ANSWER.size + 1)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += part
        answers = {ANSWER.pack(self._call, ended): ended for ended in (DONE, ERROR)}
        self.answer = answers.get(self._received)
        return bool(part) and (self.answer is not None or len(self._received) < ANSWER.size)

    def close(self) -> None:
        """Close the descriptor."""
        self._link.close()


class SessionRun(SandboxRun):
    """The run of a session's process. Between calls, its processes are stopped and still measured. Not
    thread-safe."""

    reason = ""
    """Why the session has ended; empty while it is alive."""

    def connect(self, link: socket.socket, limits: SessionLimits) -> None:
        """Take the client's end of the link. Must be called right after the start. Raises SandboxFault."""
        self.talk = self._connection = _Connection(link)
        self._session_limits = limits
        self._output = _CallOutput(self._stdout.fd, limits.output_bytes, limits.text_bytes)
        self._stdout = self._output
        self._streams = (self._stdout, self._stderr, self._result)
        # CPU seconds used, and seconds waited for a core, at the end of the previous call.
        self._used_s = self._waited_s = 0.0
        self._paused = False
        try:
            self._enter_freezer()
        except BaseException:
            self.abandon()
            raise

    def _enter_freezer(self) -> None:
        """Put the process into a group that can be frozen, before it runs any code of the program."""
        self._freezer = self.server.freezer()
        self._ask_for_meter()
        while self._meter is None:
            if not self.server.message_within(_START_TIMEOUT_S, None):
                raise SandboxFault("the fork-server did not answer in time")
            self._on_message()
            if self.ended:
                raise SandboxFault("the process of a session ended before its first call")
        if self._freezer is not None:
            self._freezer.admit(self.pid)

    @property
    def supervised(self) -> bool:
        """Whether there is more to supervise now."""
        return not self.ended and (self.killed or self._connection.answer is None)

    def call(self, source: str) -> SessionResult:
        """Run code in the session. Raises SandboxFault if the sandbox fails; the session is then over."""
        data = source.encode("utf-8", "surrogatepass")
        if self.reason:
            text = f"the session has ended: {self.reason}; this code did not run"
            return SessionResult(text, CallEnd.SESSION_ENDED, False, 0.0)
        if len(data) > MOST_SOURCE_BYTES:
            text = f"the code is longer than {MOST_SOURCE_BYTES >> 10} KiB and did not run; send it in parts"
            return SessionResult(text, CallEnd.ERROR, True, 0.0)
        used_s = self._used_s
        try:
            self._begin(data)
            stopped = self._supervise()
            if not self.ended:
                self._pause()
                stopped |= self.killed and self._supervise()
            return self._call_result(used_s, stopped=stopped)
        except BaseException as error:
            self.reason = f"the sandbox failed: {error}"
            if not self.ended:
                self.abandon()
            if isinstance(error, OSError):
                raise SandboxFault(f"a session could not be supervised: {error}") from None
            raise

    def _begin(self, source: bytes) -> None:
        limits, now = self._session_limits, time.monotonic()
        self._limits = replace(self._limits, cpu_s=min(self._used_s + limits.cpu_s, limits.total_cpu_s))
        self._wall_clock = WallClock(now, limits.call_wall_s, MOST_STARVED, self._used_s)
        self.next_tick = now + min(FIRST_READING_S, limits.call_wall_s)
        if not self._connection.send(source):
            self.kill(EndReason.KILLED)
        elif self._paused:
            self._resume()

    def _supervise(self) -> bool:
        """Supervise until the answer or the end. Returns whether the caller's ``stop_fd`` ended it."""
        with supervisor_priority() as priority:
            return drive([self], partner_grace, priority)

    def _pause(self) -> None:
        """Stop all processes, and read what they wrote and used. A limit may end the session now."""
        assert self._meter is not None
        self._paused = True
        self._stop(self._meter)
        for stream in self._streams:
            while stream.open and not stream.is_over and stream.read():
                pass
        self._disk_countdown = 1  # so that this reading includes the disk
        self._measure(self._meter)
        if self._output.is_over:
            self.kill(EndReason.OUTPUT_LIMIT)
        self._used_s = self._meter.cpu_s
        self._waited_s += self._longest_wait().seconds

    def _stop(self, meter: TreeMeter) -> None:
        """Stop all processes. Those that continue each other use CPU time, until a limit ends the session."""
        if self._freezer is not None:
            self._freezer.freeze()
            return
        processes, wait_s = meter.processes(), _SHORTEST_WAIT_S
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while not stop_all(processes):
            self._measure(meter)
            if time.monotonic() > deadline:
                self.kill(EndReason.PROCESS_LIMIT)
            if self.killed:
                return
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, TICK_S)

    def _resume(self) -> None:
        assert self._meter is not None
        self._paused = False
        if self._freezer is not None:
            self._freezer.thaw()
        else:
            continue_all(self._meter.processes())

    def watch(self) -> None:
        """Measure the session between two calls. A limit ends it now, and the next call says so."""
        if not self._paused or self.reason or self._meter is None:
            return
        try:
            self._measure(self._meter)
            if self._meter.cpu_s > self._used_s and not self.killed:
                self._stop(self._meter)
            if self.killed:
                stopped = self._supervise()
                self.reason = _CLOSED if stopped else self._why(self.result())[0]
        except (SandboxFault, OSError) as error:
            self.reason = f"the sandbox failed: {error}"
            if not self.ended:
                self.abandon()

    def _longest_wait(self) -> ThreadWait:
        """Return how long the run had no core during this call."""
        wait = super()._longest_wait()
        return wait._replace(seconds=max(wait.seconds - self._waited_s, 0.0))

    def _call_result(self, used_s: float, *, stopped: bool) -> SessionResult:
        text = self._output.take()
        if not self.ended:
            ended = CallEnd.DONE if self._connection.answer == DONE else CallEnd.ERROR
            return SessionResult(text, ended, True, self._used_s - used_s)
        result = self.result()
        if result.ended is EndReason.STARVED:
            raise SandboxFault("a call got too little of a core to tell anything; run fewer at a time")
        self.reason, ended = (_CLOSED, CallEnd.SESSION_ENDED) if stopped else self._why(result)
        newline = "\n" if text and not text.endswith("\n") else ""
        text = f"{text}{newline}[the session has ended: {self.reason}]"
        return SessionResult(text, ended, False, max(result.cpu_s - used_s, 0.0))

    def _why(self, result: RunResult) -> tuple[str, CallEnd]:
        """Return why the process has ended, as text and as the end of its call."""
        limits = self._session_limits
        cpu = f"a call used more than {limits.cpu_s:g} s of CPU time"
        if self._limits.cpu_s >= limits.total_cpu_s:
            cpu = f"its calls used more than {limits.total_cpu_s:g} s of CPU time together"
        by_limit = {
            EndReason.CPU_LIMIT: cpu,
            EndReason.WALL_LIMIT: f"a call took longer than {limits.call_wall_s:g} s",
            EndReason.MEMORY_LIMIT: f"it used more than {limits.memory_bytes / (1 << 20):g} MiB of memory",
            EndReason.OUTPUT_LIMIT: "a call wrote too much output or too many files",
            EndReason.PROCESS_LIMIT: "it started too many processes or threads",
        }
        if result.ended in by_limit:
            return by_limit[result.ended], CallEnd(result.ended)
        if result.ended is EndReason.SIGNALED:
            return f"its process was ended by signal {result.signal}", CallEnd.EXITED
        if result.ended is EndReason.EXITED:
            return f"its process exited with code {result.exit_code}", CallEnd.EXITED
        return "its process closed or misused the connection of the session", CallEnd.EXITED

    def end(self) -> None:
        """End the session with all its processes. If the sandbox fails, its fork-server ends with them."""
        if self.reason:
            return
        self.reason = _CLOSED
        try:
            self.kill(EndReason.KILLED)
            self._supervise()
        except (SandboxFault, OSError):
            self.abandon()

    def close(self) -> None:
        """Close every descriptor of the run."""
        super().close()
        self._connection.close()

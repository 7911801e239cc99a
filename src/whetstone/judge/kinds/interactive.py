"""Judges an ``interactive`` case: program and interactor, each in a sandbox, connected by a relay.

When one has exited, the other reads end of file. The first rule that applies gives the verdict, which does
not depend on which process was faster:

1. The program does not compile: COMPILE_ERROR.
2. The program exceeded a limit, or wrote more than it may, and the interactor was still running when it got
   the end of file: that limit. The interactor's reaction to an end that a limit caused does not count. If
   both wait for each other, the verdict is TIME_LIMIT. But if the interactor used most of that time, it
   counts as exhausted.
3. The program crashed before the interactor exited: RUNTIME_ERROR.
4. The interactor refused: WRONG_ANSWER, whatever else the program does. The program is stopped at once, so
   that it cannot reach a time limit, after which it would be run again.
5. The interactor accepted: the program must also exit by itself, within its limits, with exit code 0.
6. The interactor failed: ``responsibility`` decides. It works if it accepts one of the problem's references
   in this case.

The relay counts all bytes between both. With it, a process sees the exit of the other one only as end of
file. Bytes for a process that has exited are dropped, so the writer gets no SIGPIPE.

If the program crashed or exceeded a limit, the interactor sees end of file only when it waits for more data
than there is. So an interactor that exits before has decided from the program's output, and the verdict does
not depend on which process was faster.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

from whetstone.core.problem import (
    InteractiveCase,
    InteractiveTests,
    Interactor,
    Problem,
    Program,
    PythonInteractor,
)
from whetstone.core.verdict import CaseJudgement, Verdict, storable
from whetstone.judge.answers.protocols import callable_event, event_of
from whetstone.judge.answers.responsibility import Blame, CheckerEvent, Event, decide_blame, is_decision
from whetstone.judge.languages.runnable import CompileFailure, Runnable, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.outcome import DIFFERS, case, judge_failure, outlasting, run_limits
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import encode
from whetstone.sandbox import EndReason, RunLimits, RunResult, Sandbox, SandboxJob, SandboxRun, supervise
from whetstone.sandbox.streams import link_to_program

OutputDigest = tuple[int, bytes]
"""The number of bytes that a process wrote, and their digest."""
_CHUNK = 1 << 16
_POLL_INTERVAL_S = 0.005
# The interactor counts as waiting after this number of consecutive polls that find it asleep. One poll could
# find it asleep for another reason.
_WAITING_POLLS = 5
# If a program still runs this long after the end of its output, it has closed its output itself.
_EXIT_GRACE_S = 0.5


class Relay:
    """Two sockets for the two processes, and a thread for each direction between them. A context manager."""

    def __init__(
        self, program_bytes: int, interactor_bytes: int, expected: OutputDigest | None = None
    ) -> None:
        """``program_bytes`` and ``interactor_bytes`` limit the output of each process.

        ``expected`` is the ``output_digest`` of an earlier run, with which the program's output must begin.
        """
        self.saw_end = False
        """Whether the interactor was still running when it got the end of the program's output."""
        self.saw_crash = False
        """Whether the program had then crashed or exceeded a limit."""
        self._near_program, self.program_end = link_to_program()
        self._near_interactor, self.interactor_end = socket.socketpair()
        self._from_program = _Direction(
            self._near_program, self._near_interactor, program_bytes, self._wait_before_end, expected
        )
        self._from_interactor = _Direction(
            self._near_interactor, self._near_program, interactor_bytes, lambda: None
        )
        self._started = threading.Event()
        self._over = threading.Event()
        self._program: SandboxRun | None = None
        self._interactor: SandboxRun | None = None

    def started(self, program: SandboxRun, interactor: SandboxRun) -> None:
        """Set the two runs. Their states decide when the end of the output is passed on."""
        self._program, self._interactor = program, interactor
        self._started.set()

    @property
    def output_digest(self) -> OutputDigest:
        """The number of bytes that the program has written, and their digest.

        Final once the relay is closed.
        """
        return self._from_program.output_digest()

    @property
    def output_as_expected(self) -> bool:
        """Whether the program's output began as expected. Final once the relay is closed."""
        return self._from_program.as_expected

    @property
    def program_flooded(self) -> bool:
        """Whether the program wrote more than allowed."""
        return self._from_program.flooded

    @property
    def interactor_flooded(self) -> bool:
        """Whether the interactor wrote more than allowed."""
        return self._from_interactor.flooded

    def _wait_before_end(self) -> None:
        """Wait until the end of the program's output may be passed on to the interactor."""
        self._started.wait()
        program, interactor = self._program, self._interactor
        if program is None or interactor is None:
            return
        # A process's output ends shortly before the process, so wait for the result of a run that is ending.
        deadline = time.monotonic() + _EXIT_GRACE_S
        while not program.ended and (program.killed or time.monotonic() < deadline):
            if self._over.wait(_POLL_INTERVAL_S / 5):
                return
        dead = self.program_flooded
        if program.ended:
            result = program.result()
            dead |= result.ended is not EndReason.EXITED or result.exit_code != 0
        # After a crash, wait until the interactor has read all output and waits for more. Its decision then
        # does not depend on when the crash happened.
        polls_asleep = 0
        while dead and polls_asleep < _WAITING_POLLS and not self._has_exited(interactor):
            if self._over.wait(_POLL_INTERVAL_S):
                return
            polls_asleep = polls_asleep + 1 if _is_asleep(interactor.pid) else 0
        if not self._has_exited(interactor):
            self.saw_end, self.saw_crash = True, dead

    def _has_exited(self, interactor: SandboxRun) -> bool:
        return interactor.ended or self._from_interactor.ended

    def __enter__(self) -> Relay:
        self._from_program.start()
        self._from_interactor.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Close all sockets. Both runs have ended, or never began, so there is no writer."""
        self._over.set()
        self._started.set()
        for end in (self.program_end, self.interactor_end):
            end.close()
        for near in (self._near_program, self._near_interactor):
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)
        for direction in (self._from_program, self._from_interactor):
            direction.join()
        self._near_program.close()
        self._near_interactor.close()


def _is_asleep(pid: int) -> bool:
    """Return whether a process sleeps. False for one that does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == b"S"
    except OSError:
        return False


class _Direction(threading.Thread):
    """Copies from one socket to the other until end of file, and then closes the other one for writing."""

    def __init__(
        self,
        source: socket.socket,
        sink: socket.socket,
        max_bytes: int,
        before_end: Callable[[], None],
        expected: OutputDigest | None = None,
    ) -> None:
        super().__init__(name="relay", daemon=True)
        self._count, self._digest, self._expected = 0, blake2b(digest_size=16), expected
        self.as_expected = expected is None or expected == self.output_digest()
        self._source, self._sink, self._bytes_left, self._before_end = source, sink, max_bytes, before_end
        self.flooded = self.ended = False

    def run(self) -> None:
        sink_open = True
        while data := self._receive():
            self._update_digest(data)
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self.flooded = True
                with contextlib.suppress(OSError):
                    self._source.shutdown(socket.SHUT_RD)
                break
            # A sink that was closed gets nothing more, but reading goes on: the writer must not block.
            sink_open = sink_open and self._send(data)
        self.ended = True
        self._before_end()
        with contextlib.suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)

    def output_digest(self) -> OutputDigest:
        """Return the number of received bytes and their digest."""
        return self._count, self._digest.digest()

    def _update_digest(self, data: bytes) -> None:
        if self._expected is not None and self._count < self._expected[0] <= self._count + len(data):
            prefix = self._digest.copy()
            prefix.update(data[: self._expected[0] - self._count])
            self.as_expected = prefix.digest() == self._expected[1]
        self._digest.update(data)
        self._count += len(data)

    def _receive(self) -> bytes:
        try:
            return self._source.recv(_CHUNK)
        # The process closed its end with unread bytes, which counts as end of file.
        except OSError:
            return b""

    def _send(self, data: bytes) -> bool:
        try:
            self._sink.sendall(data)
        except OSError:
            return False
        return True


_INTERACTOR_CPU_S = 20.0
_INTERACTOR_MEMORY_MB = 2048.0
_INTERACTOR_BYTES = 256 << 20
_UNPROVED = "the interactor failed, and no reference shows that it works"


class _Conversation(NamedTuple):
    """The results of the program and of the interactor."""

    judged: CaseJudgement | None
    """The case's judgement, unless the interactor failed."""
    event: Event
    ran: RunResult | None = None
    output: OutputDigest = (0, b"")


def judge_interactive(
    sandboxes: SandboxSet,
    problem: Problem,
    tests: InteractiveTests,
    number: int,
    program: Program,
    stopped: dict[int, Any],
) -> CaseJudgement:
    """Judge ``program`` by a conversation with the problem's interactor. Raises SandboxFault.

    If a time limit ``stopped`` an earlier run of this case, the program's output must begin as in that run.
    """
    test = tests.cases[number]
    conversation = _converse(sandboxes, problem, tests.interactor, test, program, stopped.get(number))
    if conversation.judged is not None:
        if conversation.judged.verdict is Verdict.TIME_LIMIT:
            stopped.setdefault(number, conversation.output)
        return conversation.judged

    def works() -> bool:
        trials = (_converse(sandboxes, problem, tests.interactor, test, r).judged for r in problem.references)
        return any(judged is not None and judged.verdict is Verdict.ACCEPTED for judged in trials)

    blame, reason = decide_blame("interactor", conversation.event, works, _UNPROVED)
    if blame is Blame.JUDGE or conversation.ran is None:
        return judge_failure(reason)
    return case(conversation.ran, Verdict.WRONG_ANSWER, reason)


def _converse(
    sandboxes: SandboxSet,
    problem: Problem,
    interactor: Interactor,
    test: InteractiveCase,
    program: Program,
    expected: OutputDigest | None = None,
) -> _Conversation:
    """Run one conversation. Raises SandboxFault."""
    runnable = prepare(sandboxes, program)
    if isinstance(runnable, CompileFailure):
        judged = CaseJudgement(Verdict.COMPILE_ERROR, reason=storable(runnable.reason))
        return _Conversation(judged, Event(CheckerEvent.REFUSED))
    bounds = run_limits(problem.limits)
    with Relay(bounds.output_bytes, _INTERACTOR_BYTES, expected) as relay:
        started = _interactor_job(sandboxes, interactor, test, bounds, relay.interactor_end.fileno())
        if isinstance(started, CompileFailure):
            return _Conversation(None, Event(CheckerEvent.BROKEN, f"it does not compile: {started.reason}"))
        relay.interactor_end.detach()
        interactor_sandbox, interactor_job = started
        interactor_run = interactor_sandbox.start(interactor_job)
        try:
            box, program_job = runnable.job(bounds, link=relay.program_end.fileno())
            program_run = box.start(program_job)
        except BaseException:
            interactor_run.close()
            interactor_run.server.kill()
            raise
        relay.program_end.detach()  # the sandbox closed it once the child had it
        relay.started(program_run, interactor_run)

        def grace(ended: RunResult) -> float | None:
            """After the interactor ended, the program may run on only if it was accepted."""
            event = _event(interactor, ended, saw_end=relay.saw_end)
            return None if event.kind is CheckerEvent.ACCEPTED else 0.0

        interactor_result, ran = supervise([interactor_run, program_run], grace)
        event = _event(interactor, interactor_result, saw_end=relay.saw_end)
        if relay.interactor_flooded and event.kind is not CheckerEvent.REFUSED:
            event = Event(CheckerEvent.FLOODED, "it wrote more than a program can be expected to read")
        if (
            ran.ended is EndReason.WALL_LIMIT
            and interactor_result.cpu_s > ran.wall_s / 2
            and event.kind is not CheckerEvent.REFUSED
        ):
            event = Event(CheckerEvent.EXHAUSTED, "it kept the program waiting until the wall clock limit")
            return _Conversation(None, event, ran)
        judged = _apply_rules(runnable, ran, event, relay)
    if not relay.output_as_expected and (judged is None or judged.verdict is Verdict.ACCEPTED):
        judged = case(ran, Verdict.TIME_LIMIT, DIFFERS)
    return _Conversation(judged, event, ran, relay.output_digest)


def _interactor_job(
    sandboxes: SandboxSet, interactor: Interactor, test: InteractiveCase, bounds: RunLimits, link: int
) -> tuple[Sandbox, SandboxJob] | CompileFailure:
    """Return the sandbox and job of the interactor: the role of tests, and a longer wall clock limit."""
    limits = RunLimits(
        _INTERACTOR_CPU_S,
        int(_INTERACTOR_MEMORY_MB * (1 << 20)),
        bounds.output_bytes,
        outlasting(bounds),
    )
    if isinstance(interactor, PythonInteractor):
        payload = encode([interactor.source, test.input, test.answer])
        job = harness_job("interactor", payload, limits, link=link)
        return sandboxes.python(SandboxRole.TESTS, interactor.source), job
    runnable = prepare(sandboxes, Program(interactor.language, interactor.source), role=SandboxRole.TESTS)
    if isinstance(runnable, CompileFailure):
        return runnable
    files = {
        "input.txt": test.input.encode("utf-8", "surrogatepass"),
        "answer.txt": test.answer.encode("utf-8", "surrogatepass"),
    }
    if interactor.protocol == "testlib":
        return runnable.job(limits, args=("input.txt", "log.txt", "answer.txt"), files=files, link=link)
    files["feedback/"] = b""
    return runnable.job(limits, args=("input.txt", "answer.txt", "feedback/"), files=files, link=link)


def _event(interactor: Interactor, result: RunResult, *, saw_end: bool) -> Event:
    if not isinstance(interactor, PythonInteractor):
        python = not language_named(interactor.language, "the interactor").run
        return event_of(interactor.protocol, result, python=python, saw_end=saw_end)
    return callable_event(result, refused="refused by the interactor", saw_end=saw_end)


def _apply_rules(runnable: Runnable, ran: RunResult, event: Event, relay: Relay) -> CaseJudgement | None:
    """Return the judgement by the rules in the module docstring, in order; None if the interactor failed."""
    failed = runnable.failure(ran) if ran.ended is not EndReason.KILLED else None
    if failed is not None and failed.verdict is Verdict.COMPILE_ERROR:
        return failed
    if relay.program_flooded:
        failed = case(ran, Verdict.OUTPUT_LIMIT, "wrote more than allowed")
    if failed is not None and relay.saw_crash:
        return failed
    if not is_decision(event):
        return None
    if event.kind is CheckerEvent.ACCEPTED:
        return failed or case(ran, Verdict.ACCEPTED)
    return case(ran, Verdict.WRONG_ANSWER, event.detail)

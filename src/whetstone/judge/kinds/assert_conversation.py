"""Judge plain asserts (see ``assert_calls``) by calls: a process for the program, and none for the tests.

The judge sends one call at a time, as the test would, and compares each answer with the literal at once. An
answer is final. A failure is recorded before the program can react to it. The cost of reading and comparing
is proportional to the received bytes, which are limited.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from whetstone.core.problem import AssertTests, Problem, case_count
from whetstone.judge.answers.inert import read_one
from whetstone.judge.kinds.assert_calls import MAX_REQUEST_BYTES, Plain, plain_asserts
from whetstone.judge.kinds.assert_processes import (
    NOTHING_RAN,
    AnswerDigest,
    Pair,
    UnitOutcome,
    described_unit,
    run_pair,
)
from whetstone.judge.outcome import run_limits
from whetstone.judge.rpc.loading import describe
from whetstone.judge.rpc.program_server import LENGTH_BYTES, MAX_ANSWER_BYTES, TRUTH_OF_LAST
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import WireError, encode
from whetstone.sandbox import SandboxFault, supervise
from whetstone.sandbox.streams import link_to_program

_CHUNK = 1 << 16
# The limit of all answers of one run together, in addition to _MAX_EXPECTED_RATIO times the size of the
# expected answers.
_MAX_EXTRA_BYTES = 2 * MAX_ANSWER_BYTES
_MAX_EXPECTED_RATIO = 32
_MAX_REASON = 300
# A plain assert is one call. A program that was stopped before it answered has sent no message for it.
_NO_MESSAGES: AnswerDigest = [0, b""]
_TRUTH = encode([TRUTH_OF_LAST, [], {}])


def is_judged_by_calls(problem: Problem) -> bool:
    """Return whether a problem has assert tests of which the judge can run at least one by calls."""
    tests = problem.tests
    if not isinstance(tests, AssertTests):
        return False
    numbers = range(case_count(problem))
    try:
        return any(plain_asserts(described_unit(problem, tests, n)) is not None for n in numbers)
    # The test code is not Python, or needs one interpreter with the program.
    except ValueError:
        return False


def run_units(
    sandboxes: SandboxSet,
    problem: Problem,
    units: Sequence[dict[str, Any]],
    source: str,
    expected: AnswerDigest | None = None,
) -> Pair:
    """Run the units by calls if all of them are plain; otherwise see ``run_pair``."""
    plain = [asserts for unit in units if (asserts := plain_asserts(unit)) is not None]
    # Requests are sent without waiting, so all of them must fit into the buffer of the link, each with the
    # second request that may follow it.
    most_more = 2 * LENGTH_BYTES + len(_TRUTH)
    request_bytes = sum(len(one.request) + most_more for asserts in plain for one in asserts)
    if len(plain) < len(units) or request_bytes > MAX_REQUEST_BYTES:
        return run_pair(sandboxes, problem, units, source, expected)
    bounds = run_limits(problem.limits)
    data = source.encode("utf-8", "surrogatepass")
    near, far = link_to_program()
    with closing(AssertConversation(plain, near)) as talk, far:
        run = sandboxes.python(SandboxRole.QUERIED_BY_JUDGE, source).start(
            harness_job("program_server", data, bounds, link=far.fileno())
        )
        far.detach()  # the sandbox owns the descriptor now
        run.talk = talk
        try:
            ran = supervise([run])[0]
        except SandboxFault as fault:
            return Pair(NOTHING_RAN, NOTHING_RAN, talk.outcomes, False, True, _NO_MESSAGES, fault)
        talk.finish()
    return Pair(NOTHING_RAN, ran, talk.outcomes, False, True, _NO_MESSAGES)


class AssertConversation:
    """The judge's end of the link: selects the next request and records the outcome of each unit. Never
    blocks."""

    def __init__(self, units: Sequence[Sequence[Plain]], link: socket.socket) -> None:
        """``link`` is closed when the conversation ends."""
        link.setblocking(False)
        self._link = link
        self._units = units
        self.outcomes: list[UnitOutcome] = []
        # The number of asserts of the current unit whose request was sent.
        self._sent_asserts = 0
        self._program_loaded = self._done = self._process_ended = self._truth_requested = False
        self._data = bytearray()
        expected = sum(one.rule.expected_bytes for asserts in units for one in asserts)
        self._bytes_left = _MAX_EXTRA_BYTES + _MAX_EXPECTED_RATIO * expected

    def fileno(self) -> int:
        """Return the descriptor of the link."""
        return self._link.fileno()

    def close(self) -> None:
        """End the conversation. The program then reads end of file."""
        self._done = True
        self._link.close()

    def receive(self) -> bool:
        """Process the received data and send the next request. Returns False at the end of the
        conversation."""
        try:
            data = self._link.recv(_CHUNK)
        except BlockingIOError:
            if not self._process_ended:
                return True
            data = b""
        # The program closed its end with unread bytes. This counts as end of file.
        except OSError:
            data = b""
        self._bytes_left -= len(data)
        self._data += data
        if not data:
            self._fail("the program ended")
        elif self._bytes_left < 0:
            self._fail("the program sent more than correct answers need")
        while not self._done and (message := self._next_message()) is not None:
            self._handle_message(message)
        if self._done:
            self.close()
        return not self._done

    def finish(self) -> None:
        """Process the data that a process left on the link when it ended."""
        self._process_ended = True
        while not self._done:
            self.receive()

    def _next_message(self) -> bytes | None:
        """Remove and return the next complete message; None if there is none."""
        if len(self._data) < LENGTH_BYTES:
            return None
        end = LENGTH_BYTES + int.from_bytes(self._data[:LENGTH_BYTES], "little")
        if end > MAX_ANSWER_BYTES + _CHUNK:
            self._fail("a message is larger than any answer")
        if self._done or len(self._data) < end:
            return None
        message = bytes(self._data[LENGTH_BYTES:end])
        del self._data[:end]
        return message

    def _handle_message(self, message: bytes) -> None:
        current = self._current_assert() if self._program_loaded else None
        # Most answers are correct, and then equal to the encoded expected answer. This comparison avoids
        # decoding them.
        if current is not None and current.rule.answer is not None and message == current.rule.answer:
            self._finish_assert(current, right=True, strained=False)
            return
        try:
            content = read_one(message, None if current is None else current.rule.expected)
        except WireError:
            content = None
        if current is not None:
            self._handle_answer(current, content)
            return
        self._program_loaded = True
        match content:
            case ["loaded"]:
                self._send_next()
            case ["failed", str() as reason]:
                self.outcomes = [UnitOutcome("raised", reason[:_MAX_REASON], False) for _ in self._units]
                self._done = True
            case _:
                self._fail("a malformed greeting")

    def _handle_answer(self, current: Plain, answer: object) -> None:
        match answer:
            case ["value", value]:
                try:
                    right = current.rule.right(value)
                # The comparison can raise whatever it raises in the test itself, such as OverflowError.
                except Exception as error:
                    self._settle("unusable", describe(error))
                else:
                    self._finish_assert(current, right=right, strained=False)
            case ["unplain"] if current.rule.unplain is not None:
                self._finish_assert(current, right=current.rule.unplain, strained=True)
            # The assert tests the truth of an object that has no plain form, so the program must be asked for
            # it.
            case ["unplain"] if not self._truth_requested:
                self._truth_requested = True
                self._send(_TRUTH)
            case ["raised" | "unusable" as status, str() as reason]:
                self._settle(status, reason[:_MAX_REASON])
            case ["missing"]:
                self._settle("missing", current.missing)
            case _:
                self._fail("a malformed answer")

    def _finish_assert(self, current: Plain, *, right: bool, strained: bool) -> None:
        if not right:
            self._settle("failed", current.reason, strained)
        elif self._sent_asserts < len(self._units[len(self.outcomes)]):
            self._send_next()
        else:
            self._settle("passed", "")

    def _settle(self, status: str, reason: str, strained: bool = False) -> None:
        """Record the final outcome of the current unit, and begin the next one."""
        self.outcomes.append(UnitOutcome(status, reason, strained))
        self._sent_asserts = 0
        if len(self.outcomes) < len(self._units):
            self._send_next()
        else:
            self._done = True

    def _current_assert(self) -> Plain:
        """Return the assert to which the last request belongs."""
        return self._units[len(self.outcomes)][self._sent_asserts - 1]

    def _send_next(self) -> None:
        self._sent_asserts += 1
        self._truth_requested = False
        self._send(self._current_assert().request)

    def _send(self, request: bytes) -> None:
        data = len(request).to_bytes(LENGTH_BYTES, "little") + request
        try:
            sent = self._link.send(data)
        # The link has room for all requests of a run. If it has none, the program does not read.
        except OSError:
            sent = 0
        if sent != len(data):
            self._fail("the program ended")

    def _fail(self, reason: str) -> None:
        self.outcomes.append(UnitOutcome("gone", reason, False))
        self._done = True

"""Judging plain asserts (see ``plain``) by calls alone: a process for the program, and none for the tests.

The judge asks one thing after the other, as the test would, and holds every answer against the literal as
soon as it comes: an answer is final, and a refusal is put down before the program can do anything about it.
Reading and comparing costs in proportion to what was received, of which there is a bound.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from whetstone.judge.answers.inert import read_one
from whetstone.judge.boxes import Boxes, Side, harness_job
from whetstone.judge.harness.asked import LENGTH_BYTES, MOST_ANSWERED_BYTES, TRUTH_OF_LAST
from whetstone.judge.harness.loading import describe
from whetstone.judge.kinds.pair import NOTHING_RAN, Outcome, Pair, Short, described_unit, run_pair
from whetstone.judge.kinds.plain import MOST_ASKED_BYTES, Plain, plain_asserts
from whetstone.judge.outcome import run_limits
from whetstone.judge.values import WireError, encode
from whetstone.problem import AssertTests, Problem, case_count
from whetstone.sandbox import SandboxFault, supervise
from whetstone.sandbox.streams import link_to_program

_CHUNK = 1 << 16
_MOST_HEARD_BYTES = 2 * MOST_ANSWERED_BYTES
"""Of all answers of one run together, besides what so many that are right may take."""
_TIMES_EXPECTED = 32
_MAX_REASON = 300
_SAID_NOTHING: Short = [0, b""]
"""A plain assert asks once: a program that was stopped before it answered has said nothing in it."""
_TRUTH = encode([TRUTH_OF_LAST, [], {}])


def is_asked(problem: Problem) -> bool:
    """Whether the tests of a problem are asserts that the judge asks itself, one at least."""
    tests = problem.tests
    if not isinstance(tests, AssertTests):
        return False
    numbers = range(case_count(problem))
    try:
        return any(plain_asserts(described_unit(problem, tests, n)) is not None for n in numbers)
    except ValueError:  # not Python, or it cannot stand apart
        return False


def run_units(
    boxes: Boxes,
    problem: Problem,
    units: Sequence[dict[str, Any]],
    source: str,
    expected: Short | None = None,
) -> Pair:
    """What became of the units: by calls alone where they are plain, else as ``run_pair`` says, which see."""
    plain = [asserts for unit in units if (asserts := plain_asserts(unit)) is not None]
    asked_bytes = sum(_room(one.request) for asserts in plain for one in asserts)
    if len(plain) < len(units) or asked_bytes > MOST_ASKED_BYTES:
        return run_pair(boxes, problem, units, source, expected)
    limits = problem.limits
    bounds = run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb)
    data = source.encode("utf-8", "surrogatepass")
    near, far = link_to_program()
    with closing(Conversation(plain, near)) as talk, far:
        run = boxes.python(Side.ASKED, source).start(harness_job("asked", data, bounds, link=far.fileno()))
        far.detach()  # the sandbox has closed it
        run.talk = talk
        try:
            ran = supervise([run])[0]
        except SandboxFault as fault:
            return Pair(NOTHING_RAN, NOTHING_RAN, talk.outcomes, False, True, _SAID_NOTHING, fault)
        talk.finish()
    return Pair(NOTHING_RAN, ran, talk.outcomes, False, True, _SAID_NOTHING)


def _room(request: bytes) -> int:
    """Bytes that it takes on the way, at most, with what may be asked about its answer."""
    return 2 * LENGTH_BYTES + len(request) + len(_TRUTH)


class Conversation:
    """The judge's side of the link: what to ask next, and what became of each unit. It never waits."""

    def __init__(self, units: Sequence[Sequence[Plain]], link: socket.socket) -> None:
        """Over ``link``, which is closed when all is said."""
        link.setblocking(False)
        self._link = link
        self._units = units
        self.outcomes: list[Outcome] = []
        self._asked = 0
        """How many asserts of the present unit were put to the program."""
        self._greeted = self._over = self._ended = self._asked_truth = False
        self._data = bytearray()
        expected = sum(one.rule.expected_bytes for asserts in units for one in asserts)
        self._left = _MOST_HEARD_BYTES + _TIMES_EXPECTED * expected

    def fileno(self) -> int:
        """The link's descriptor."""
        return self._link.fileno()

    def close(self) -> None:
        """Have no more to say. The program then reads end of file."""
        self._over = True
        self._link.close()

    def heard(self) -> bool:
        """Take what has come, and ask on; False when all is said."""
        try:
            data = self._link.recv(_CHUNK)
        except BlockingIOError:
            if not self._ended:
                return True
            data = b""
        except OSError:  # closed with unread bytes: an end like any other
            data = b""
        self._left -= len(data)
        self._data += data
        if not data:
            self._lose("the other process ended")
        elif self._left < 0:
            self._lose("it said more than any right answers take")
        while not self._over and (message := self._message()) is not None:
            self._take(message)
        if self._over:
            self.close()
        return not self._over

    def finish(self) -> None:
        """Take what a process that has ended left on the link."""
        self._ended = True
        while not self._over:
            self.heard()

    def _message(self) -> bytes | None:
        """The next whole message."""
        if len(self._data) < LENGTH_BYTES:
            return None
        end = LENGTH_BYTES + int.from_bytes(self._data[:LENGTH_BYTES], "little")
        if end > MOST_ANSWERED_BYTES + _CHUNK:
            self._lose("a message of absurd size")
        if self._over or len(self._data) < end:
            return None
        message = bytes(self._data[LENGTH_BYTES:end])
        del self._data[:end]
        return message

    def _take(self, message: bytes) -> None:
        now = self._now() if self._greeted else None
        if now is not None and now.rule.answer is not None and message == now.rule.answer:
            self._compared(now, right=True, strained=False)
            return
        try:
            said = read_one(message, None if now is None else now.rule.expected)
        except WireError:
            said = None
        if now is not None:
            self._answered(now, said)
            return
        self._greeted = True
        match said:
            case ["loaded"]:
                self._ask_next()
            case ["failed", str() as reason]:
                self.outcomes = [Outcome("raised", reason[:_MAX_REASON], False) for _ in self._units]
                self._over = True
            case _:
                self._lose("a malformed greeting")

    def _answered(self, now: Plain, said: object) -> None:
        match said:
            case ["value", value]:
                try:
                    right = now.rule.right(value)
                except Exception as error:  # as the test would have raised it
                    self._settle("unusable", describe(error))
                else:
                    self._compared(now, right=right, strained=False)
            case ["unplain"] if now.rule.unplain is not None:
                self._compared(now, right=now.rule.unplain, strained=True)
            case ["unplain"] if not self._asked_truth:
                self._asked_truth = True
                self._ask(_TRUTH)
            case ["raised" | "unusable" as status, str() as reason]:
                self._settle(status, reason[:_MAX_REASON])
            case ["missing"]:
                self._settle("missing", now.missing)
            case _:
                self._lose("a malformed answer")

    def _compared(self, now: Plain, *, right: bool, strained: bool) -> None:
        if not right:
            self._settle("failed", now.reason, strained)
        elif self._asked < len(self._units[len(self.outcomes)]):
            self._ask_next()
        else:
            self._settle("passed", "")

    def _settle(self, status: str, reason: str, strained: bool = False) -> None:
        """The present unit is decided, for good."""
        self.outcomes.append(Outcome(status, reason, strained))
        self._asked = 0
        if len(self.outcomes) < len(self._units):
            self._ask_next()
        else:
            self._over = True

    def _now(self) -> Plain:
        """What the program was asked last."""
        return self._units[len(self.outcomes)][self._asked - 1]

    def _ask_next(self) -> None:
        self._asked += 1
        self._asked_truth = False
        self._ask(self._now().request)

    def _ask(self, request: bytes) -> None:
        data = len(request).to_bytes(LENGTH_BYTES, "little") + request
        try:
            sent = self._link.send(data)
        except OSError:  # also where there is no room, of which there is enough for all
            sent = 0
        if sent != len(data):
            self._lose("the other process ended")

    def _lose(self, reason: str) -> None:
        self.outcomes.append(Outcome("gone", reason, False))
        self._over = True

"""A fuzzer of the link: each hostile program talks to two real test processes.

Both processes run the same test with different secrets, in two sandboxes whose memory addresses differ, and
get the same messages. They must send equal bytes: any difference comes from a secret or an address. They must
also end by themselves, and pass no test.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from struct import Struct
from typing import Any

from whetstone.judge.kinds.assert_processes import read_record, tests_payload
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import WireError, decode, encode
from whetstone.sandbox import EndReason, RunLimits, RunResult, Sandbox, Tier, supervise
from whetstone_exam.fuzz.fuzz_tests import COUNT, secrets, unit
from whetstone_exam.fuzz.hostile import Hostile

_HEADER = Struct("<Q")
_LIMITS = RunLimits(cpu_s=10.0, memory_bytes=1 << 30, output_bytes=1 << 20, wall_s=120.0)
_DEADLINE_S = 150.0
_MAX_MESSAGES = 30
_PING = b"ping"


class PropertyViolation(Exception):
    """A property does not hold. The text names the property and the evidence."""


class LinkSession:
    """A hostile program and its two test processes."""

    def __init__(self, boxes: list[Sandbox], rng: Random, *, secret_known: bool = False) -> None:
        """``secret_known``: both tests have the same secret, and the program knows it as ``secret``."""
        self.test = rng.randrange(COUNT)
        self.program = Hostile(rng)
        self.alive = True
        seeds = [rng.getrandbits(64) for _ in boxes]
        drawn = [secrets(Random(f"{seeds[0 if secret_known else n]}")) for n in range(len(boxes))]
        # Secrets of different types would give different error messages, which is no leak.
        kind = type(drawn[0][0])
        while any(type(secret) is not kind for secret, _ in drawn):
            drawn = [secrets(Random(rng.getrandbits(64))) for _ in boxes]
        self.secret = drawn[0][0]
        self._ends: list[socket.socket] = []
        self._nonces: list[bytes] = []
        self._results: list[RunResult] = []
        runs: list[Any] = []
        for box, (secret, neighbours) in zip(boxes, drawn, strict=True):
            near, far = socket.socketpair()
            # A test process that neither answers nor ends is a violation, not a hanging fuzzer.
            far.settimeout(_DEADLINE_S)
            self._ends.append(far)
            payload = tests_payload([unit(self.test, secret, neighbours)], None, compiled=True)
            runs.append(box.start(harness_job("tests", payload, _LIMITS, link=near.fileno())))
            # The sandbox has closed this end after passing it to the child.
            near.detach()
        self._thread = threading.Thread(target=lambda: self._results.extend(supervise(runs, _no_grace)))
        self._thread.start()
        self.send(self.program.greeting() if not secret_known else b"!" + encode(["loaded"]))

    def send(self, message: bytes) -> None:
        """Send a message to both processes and process their replies. Raises PropertyViolation if the replies
        differ."""
        replies: list[bytes] = []
        for number, end in enumerate(self._ends):
            data = message.replace(self._nonces[0], self._nonces[number]) if self._nonces else message
            with suppress(OSError):  # the process has ended, but its earlier messages can still be read
                end.sendall(_HEADER.pack(len(data)) + data)
            replies.append(_receive_message(end))
        self.check_equal(replies)
        self.alive = bool(replies[0])
        if self.alive:
            self.program.receive(replies[0])

    def check_equal(self, replies: list[bytes]) -> None:
        """Raise PropertyViolation unless both replies are equal, except for the nonces of a final ping."""
        # Every process chooses its own random nonce, so nonces are made equal before the comparison.
        self._nonces = _ping_nonces(replies)
        equalized = replies
        if self._nonces:
            equalized = [
                reply.replace(nonce, self._nonces[0])
                for reply, nonce in zip(replies, self._nonces, strict=False)
            ]
        if len(set(equalized)) > 1:
            raise PropertyViolation(
                f"the messages to the program depend on secrets or addresses: {replies!r}"[:2000]
            )

    def finish(self, last_words: bytes = b"") -> list[str]:
        """Send a few more bytes, close the links, and return the statuses of the tests.

        Raises PropertyViolation unless both processes end by themselves.
        """
        for end in self._ends:
            with suppress(OSError):
                end.sendall(last_words)
            end.close()
        self._thread.join(_DEADLINE_S)
        if self._thread.is_alive():
            raise PropertyViolation(f"a test process did not end within {_DEADLINE_S:.0f} s")
        for result in self._results:
            if result.ended is not EndReason.EXITED or result.exit_code != 0:
                stderr = result.stderr[-500:].decode("utf-8", "replace")
                raise PropertyViolation(
                    f"a test process ended by {result.ended} {result.signal or result.exit_code} {stderr}"
                )
        return [outcome.status for r in self._results for outcome in read_record(r.result)[0]]


def _no_grace(_: RunResult) -> None:
    """Return None: neither process waits for the other."""


def _receive_message(end: socket.socket) -> bytes:
    """Return one message; empty at the end of the stream. Raises PropertyViolation after a timeout."""
    data = b""
    wanted = _HEADER.size
    while len(data) < wanted:
        try:
            part = end.recv(wanted - len(data))
        except TimeoutError:
            raise PropertyViolation(f"a test process sent nothing for {_DEADLINE_S:.0f} s") from None
        except OSError:
            part = b""
        if not part:
            return b""
        data += part
        if len(data) == _HEADER.size == wanted:
            wanted += _HEADER.unpack(data)[0]
    return data[_HEADER.size :]


def _ping_nonces(messages: list[bytes]) -> list[bytes]:
    """Return the nonces that the processes request as their last reply; empty for other messages."""
    found: list[bytes] = []
    for message in messages:
        try:
            request = decode(message[1:], lambda name: name) if _PING in message else None
        except WireError:
            request = None
        match request:
            case ["ping", bytes() as nonce]:
                found.append(nonce)
            case _:
                return []
    return found


def run_session(session: LinkSession) -> None:
    """Send random messages until the test ends or the maximum is reached. Raises PropertyViolation."""
    rng, program = session.program.rng, session.program
    try:
        for _ in range(rng.randrange(_MAX_MESSAGES)):
            if session.alive:
                session.send(program.message())
        for _ in range(_MAX_MESSAGES if rng.random() < 0.7 else 0):
            if session.alive:
                session.send(program.shortest_reply())
    finally:
        statuses = session.finish(rng.choice((b"", b"", rng.randbytes(5), rng.randbytes(20))))
    if "passed" in statuses:
        raise PropertyViolation(f"test {session.test} passed, but the program does not know its secret")


@contextmanager
def sandboxes_for_tests(tier: str | None = None) -> Generator[list[Sandbox]]:
    """Start two sandboxes for test processes that share no memory. Raises SandboxUnavailable."""
    wanted = None if tier is None else Tier[tier.upper()]
    with SandboxSet(Tier.RESTRICTED, wanted) as first, SandboxSet(Tier.RESTRICTED, wanted) as second:
        yield [sandboxes.python(SandboxRole.TESTS) for sandboxes in (first, second)]


def run_sessions(seeds: Iterable[int], tier: str | None = None) -> Iterator[tuple[int, str]]:
    """Run a session for each seed. Yield the seed and the violation; the text is empty if there was none."""
    with sandboxes_for_tests(tier) as boxes:
        yield from run_seeds(seeds, lambda rng: run_session(LinkSession(boxes, rng)))


def run_seeds(seeds: Iterable[int], run_session: Callable[[Random], None]) -> Iterator[tuple[int, str]]:
    """Call ``run_session`` for each seed. Yield the seed and the violation; the text is empty if there was
    none."""
    for seed in seeds:
        try:
            run_session(Random(seed))
        except PropertyViolation as found:
            yield seed, str(found)
        else:
            yield seed, ""

"""A fuzzer of the tests that the judge runs itself: each hostile program talks to two judges.

The tests of the two judges differ only in their random expected values. The judges must therefore send equal
bytes, end without waiting, and accept no test.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from random import Random

from whetstone.core.problem import AssertTests, Problem
from whetstone.judge.kinds.assert_calls import Plain, plain_asserts
from whetstone.judge.kinds.assert_conversation import AssertConversation
from whetstone.judge.kinds.assert_processes import described_unit
from whetstone.judge.rpc.program_server import LENGTH_BYTES
from whetstone.judge.values import NotInert, encode
from whetstone_exam.fuzz.hostile import Hostile
from whetstone_exam.fuzz.link_fuzz import PropertyViolation, run_seeds

_MAX_MESSAGES = 12
_FORMS = (
    "{call} == {secret}",
    "{secret} == {call}",
    "math.isclose({call}, {number})",
    "tuple({call}) == ({secret},)",
    "set({call}) == {{{number}, 1}}",
    "abs({call} - {number}) < 1e-6, 'not ' + str({call})",
)
_FIXED_MESSAGES = (
    ["loaded"],
    ["missing"],
    ["unplain"],
    ["passed"],
    ["unusable", "x"],
    ["unit", "passed", "", False],
    ["failed", "x"],
    [],
)


def run_sessions(seeds: Iterable[int], tier: str | None = None) -> Iterator[tuple[int, str]]:
    """Run a session for each seed in this process. Yield the seed and the violation; the text is empty if
    there was none."""
    return run_seeds(seeds, run_session)


def run_session(rng: Random) -> None:
    """Send random messages to two judges. Raises PropertyViolation."""
    shape = rng.getrandbits(64)
    messages = [_random_message(rng) for _ in range(rng.randrange(_MAX_MESSAGES))]
    sent = b"".join(([] if rng.random() < 0.1 else [_with_length(encode(["loaded"]))]) + messages)
    if rng.random() < 0.3:
        sent = bytearray(sent) + rng.randbytes(rng.randrange(12))
        if sent and rng.random() < 0.5:
            sent[rng.randrange(len(sent))] = rng.randrange(256)
    with ExitStack() as stack:
        conversations: list[tuple[AssertConversation, socket.socket]] = []
        for _ in range(2):
            # The far end does not block: the judge must have sent everything when `finish` returns.
            near, far = socket.socketpair()
            far.setblocking(False)
            # Both judges get tests of the same shape. The secrets come from `rng`, so they differ.
            units = _random_units(Random(shape), secret=rng)
            conversations.append(
                (stack.enter_context(closing(AssertConversation(units, near))), stack.enter_context(far))
            )
        received = [_converse(*conversation, bytes(sent)) for conversation in conversations]
        if received[0] != received[1]:
            raise PropertyViolation(
                f"the requests to the program depend on the expected values: {received!r}"[:2000]
            )
        if any(outcome.status == "passed" for judge, _ in conversations for outcome in judge.outcomes):
            raise PropertyViolation("a test passed, but the program does not know the expected value")


def _converse(judge: AssertConversation, end: socket.socket, sent: bytes) -> bytes:
    """Send all bytes to a judge and close the stream. Return everything that the judge sent."""
    try:
        end.send(sent)
        end.shutdown(socket.SHUT_WR)
        judge.finish()
    except OSError:
        pass
    except Exception as error:
        raise PropertyViolation(f"the judge raised {type(error).__name__}: {error}") from error
    received = b""
    while True:
        try:
            part = end.recv(1 << 16)
        except OSError:
            return received
        if not part:
            return received
        received += part


def _random_units(shape: Random, secret: Random) -> Sequence[Sequence[Plain]]:
    """Return tests: ``shape`` chooses their form, and ``secret`` the expected values."""
    units: list[Sequence[Plain]] = []
    for _ in range(shape.randrange(1, 4)):
        lines: list[str] = ["import math"]
        for _ in range(shape.randrange(1, 3)):
            call = f"f({shape.randrange(9)}, {shape.choice(['[]', '(1, 2)', '{3: None}', repr('x')])})"
            form, kind = shape.choice(_FORMS), shape.randrange(4)
            hidden = secret.getrandbits(96)
            value = (hidden, str(hidden), [hidden, [None]], {"k": (hidden,)})[kind]
            lines.append(f"assert {form.format(call=call, secret=repr(value), number=float(hidden))}")
        tests = AssertTests(asserts=["\n".join(lines)])
        unit = described_unit(Problem("fuzz", "", tests), tests, 0)
        units.append(plain_asserts(unit) or [])
    return units


def _random_message(rng: Random) -> bytes:
    hostile = Hostile(rng)
    kind = rng.random()
    try:
        if kind < 0.6:
            return _with_length(encode(["value", hostile.value(plain=True)]))
        if kind < 0.8:
            return _with_length(encode(rng.choice(_FIXED_MESSAGES)))
        if kind < 0.9:
            return _with_length(encode(["raised", "E: " + "x" * rng.randrange(9)]))
    except NotInert:
        pass
    return _with_length(rng.randbytes(rng.choice((0, rng.randrange(30)))))


def _with_length(data: bytes) -> bytes:
    return len(data).to_bytes(LENGTH_BYTES, "little") + data

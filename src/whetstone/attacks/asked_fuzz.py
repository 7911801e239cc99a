"""A fuzzer of the judge's own questions: hostile programs against two judges at a time, that ask the same.

What they expect differs, and is nothing that can be guessed. So they must say the same, byte for byte, as
long as they talk; both must come to an end without waiting, and pass no test.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from random import Random

from whetstone.attacks.hostile import Hostile
from whetstone.attacks.link_fuzz import Found, played
from whetstone.judge.harness.asked import LENGTH_BYTES
from whetstone.judge.kinds.by_calls import Conversation
from whetstone.judge.kinds.pair import described_unit
from whetstone.judge.kinds.plain import Plain, plain_asserts
from whetstone.judge.values import NotInert, encode
from whetstone.problem import AssertTests, Problem

_MOST_MESSAGES = 12
_FORMS = (
    "{call} == {secret}",
    "{secret} == {call}",
    "math.isclose({call}, {number})",
    "tuple({call}) == ({secret},)",
    "set({call}) == {{{number}, 1}}",
    "abs({call} - {number}) < 1e-6, 'not ' + str({call})",
)
_WORDS = (
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
    """Play a session for each seed, in this process: the seed, and what was found or nothing."""
    return played(seeds, play)


def play(draw: Random) -> None:
    """Say things at random to two judges. Raises Found."""
    shape = draw.getrandbits(64)
    messages = [_message(draw) for _ in range(draw.randrange(_MOST_MESSAGES))]
    said = b"".join(([] if draw.random() < 0.1 else [_framed(encode(["loaded"]))]) + messages)
    if draw.random() < 0.3:
        said = bytearray(said) + draw.randbytes(draw.randrange(12))
        if said and draw.random() < 0.5:
            said[draw.randrange(len(said))] = draw.randrange(256)
    with ExitStack() as stack:
        talks: list[tuple[Conversation, socket.socket]] = []
        for _ in range(2):
            near, far = socket.socketpair()
            far.setblocking(False)
            units = _units(Random(shape), secret=draw)
            talks.append((stack.enter_context(closing(Conversation(units, near))), stack.enter_context(far)))
        heard = [_talk(*talk, bytes(said)) for talk in talks]
        if heard[0] != heard[1]:
            raise Found(f"what the program is asked depends on what is expected: {heard!r}"[:2000])
        if any(outcome.status == "passed" for talk, _ in talks for outcome in talk.outcomes):
            raise Found("a test passed, for a program that does not know what is expected")


def _talk(talk: Conversation, end: socket.socket, said: bytes) -> bytes:
    """What the judge said while it was told all this in one go, and then nothing more."""
    try:
        end.send(said)
        end.shutdown(socket.SHUT_WR)
        talk.finish()
    except OSError:
        pass
    except Exception as error:
        raise Found(f"the judge raised {type(error).__name__}: {error}") from error
    heard = b""
    while True:
        try:
            part = end.recv(1 << 16)
        except OSError:
            return heard
        if not part:
            return heard
        heard += part


def _units(shape: Random, secret: Random) -> Sequence[Sequence[Plain]]:
    """Tests whose shape is drawn from one, and what they expect from the other."""
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


def _message(draw: Random) -> bytes:
    hostile = Hostile(draw)
    kind = draw.random()
    try:
        if kind < 0.6:
            return _framed(encode(["value", hostile.value(plain=True)]))
        if kind < 0.8:
            return _framed(encode(draw.choice(_WORDS)))
        if kind < 0.9:
            return _framed(encode(["raised", "E: " + "x" * draw.randrange(9)]))
    except NotInert:
        pass
    return _framed(draw.randbytes(draw.choice((0, draw.randrange(30)))))


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(LENGTH_BYTES, "little") + data

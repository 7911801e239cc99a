"""The conversation that fork-servers rehearse is one: heard to its end, by the code that real ones run."""

from __future__ import annotations

import socket

import pytest

from whetstone.judge.boxes import Boxes, Side
from whetstone.judge.harness.rehearsal import Rehearsal, of_asked, of_program, of_tests
from whetstone.sandbox import Job, RunLimits, Tier, supervise

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("side", "rehearsal"),
    [(Side.ASKED, of_asked()), (Side.CALLED, of_program()), (Side.TESTS, of_tests())],
)
def test_a_rehearsed_conversation_is_heard_to_its_end(side: Side, rehearsal: Rehearsal) -> None:
    limits = RunLimits(cpu_s=10.0, memory_bytes=1 << 30, output_bytes=1 << 20)
    with Boxes(Tier.RESTRICTED) as boxes:
        near, far = socket.socketpair()
        with near:
            run = boxes.python(side).start(Job(side.value, rehearsal.payload, limits, link=far.detach()))
            near.sendall(rehearsal.heard)
            said = b""
            while rehearsal.last not in said:
                part = near.recv(1 << 16)
                assert part, f"it ended after {said!r}"
                said += part
        [result] = supervise([run])
    assert result.exit_code == 0
    assert not result.stderr

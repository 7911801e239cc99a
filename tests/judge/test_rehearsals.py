"""The conversation that fork-servers rehearse is one: heard to its end, by the code that real ones run."""

from __future__ import annotations

import socket

import pytest

from whetstone.judge.rpc.rehearsal import (
    Rehearsal,
    program_rehearsal,
    program_server_rehearsal,
    rehearsal_of_tests,
)
from whetstone.judge.sandboxes import SandboxRole, SandboxSet
from whetstone.sandbox import RunLimits, SandboxJob, Tier, supervise

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("side", "rehearsal"),
    [
        (SandboxRole.QUERIED_BY_JUDGE, program_server_rehearsal()),
        (SandboxRole.CALLED_BY_TESTS, program_rehearsal()),
        (SandboxRole.TESTS, rehearsal_of_tests()),
    ],
)
def test_a_rehearsed_conversation_is_heard_to_its_end(side: SandboxRole, rehearsal: Rehearsal) -> None:
    limits = RunLimits(cpu_s=10.0, memory_bytes=1 << 30, output_bytes=1 << 20)
    with SandboxSet(Tier.RESTRICTED) as boxes:
        near, far = socket.socketpair()
        with near:
            run = boxes.python(side).start(
                SandboxJob(side.value, rehearsal.payload, limits, link=far.detach())
            )
            near.sendall(rehearsal.received)
            said = b""
            while rehearsal.last_sent not in said:
                part = near.recv(1 << 16)
                assert part, f"it ended after {said!r}"
                said += part
        [result] = supervise([run])
    assert result.exit_code == 0
    assert not result.stderr

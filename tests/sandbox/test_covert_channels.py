"""Two sandboxes at once: a number that one knows does not cross to the other by what the kernel shares."""

from __future__ import annotations

import secrets
import textwrap
import threading

import pytest

from tests.beside import data_beside
from whetstone.sandbox import RunLimits, Sandbox, Tier
from whetstone.sandbox.script import script_job
from whetstone.sandbox.streams import link_to_program

SHARED = data_beside(__file__)

pytestmark = pytest.mark.process

BITS = 40
LIMITS = RunLimits(cpu_s=20.0, memory_bytes=256 << 20, output_bytes=1 << 20, wall_s=120.0)
COMMON = f"BITS = {BITS}\n" + SHARED["common"]
SEND: str = SHARED["texts"]["send"]
RECEIVE: str = SHARED["texts"]["receive"]


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", SHARED["channel"])
def test_a_number_does_not_cross(tier: Tier, name: str) -> None:
    channel = SHARED["channel"][name]
    number = secrets.randbits(BITS) | 1 << BITS - 1
    sends = COMMON + SEND.replace("NUMBER", str(number)).replace(
        "TRIED", textwrap.indent(channel["send"], "    ")
    )
    with Sandbox({}, tier=tier) as one, Sandbox({}, tier=tier) as other:
        ours, theirs = link_to_program()
        with ours:
            job = script_job(sends.encode(), LIMITS, link=theirs.detach())
            sending = threading.Thread(target=one.run, args=(job,))
            sending.start()
            assert ours.recv(4) == b"sent"
            received = other.run(
                script_job((COMMON + RECEIVE.replace("ASKED", channel["receive"])).encode(), LIMITS)
            )
        sending.join()
    assert received.exit_code == 0, received.stderr
    assert int(received.stdout) != number


NEED_NAMESPACES = {"dbm", "multiprocessing.Lock"}


@pytest.mark.parametrize("name", SHARED["honest"])
def test_honest_programs_lock_their_own_files(tier: Tier, name: str) -> None:
    if tier is Tier.RESTRICTED and name in NEED_NAMESPACES:
        pytest.skip("this tier changes no modes, and has no named semaphores")
    source = SHARED["honest"][name]
    with Sandbox({}, tier=tier) as box:
        result = box.run(script_job(source.encode(), LIMITS))
    assert result.exit_code == 0, result.stderr.decode()

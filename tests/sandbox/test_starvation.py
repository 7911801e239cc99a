"""A run that gets no core is not ended for taking long; one that only sleeps is, however busy the machine."""

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from whetstone.sandbox import EndReason, RunLimits, Sandbox, SandboxJob, Tier

pytestmark = [pytest.mark.process, pytest.mark.crowd]

ATTEMPTS = 10
LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20, wall_s=0.4)
WORKER = b"import time\nwhile time.process_time() < 0.1: pass\nprint('done')"
FAMILY = (
    b"import os, time\n"
    b"for _ in range(10):\n"
    b"    if os.fork() == 0:\n"
    b"        while time.process_time() < 0.01: pass\n"
    b"        os._exit(0)\n"
    b"    os.wait()\n"
    b"print('done')"
)
SPIN = [sys.executable, "-S", "-c", "while True: pass"]


@contextmanager
def spinning(count: int) -> Generator[None]:
    """So many processes, each a scheduling group of its own, that compute without end."""
    crowd = [subprocess.Popen(SPIN, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in crowd:
            process.kill()
            process.wait()


@contextmanager
def on_one_core(tier: Tier, count: int) -> Generator[Sandbox]:
    """A sandbox on one core, which it shares with so many processes that compute without end."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with Sandbox({}, tier=tier) as sandbox, spinning(count):
            yield sandbox
    finally:
        os.sched_setaffinity(0, cores)


@pytest.fixture
def crowded(tier: Tier) -> Iterator[Sandbox]:
    with on_one_core(tier, 6) as sandbox:
        yield sandbox


def passes_a_limit_that_the_machine_uses_up(sandbox: Sandbox, source: bytes) -> bool:
    """A run takes longer than its wall clock limit for want of a core, and is not ended for it.

    What it takes in this crowd, and beside what else computes here, is measured first. That changes: who then
    gets too little to be judged has met with the machine's failure, and is tried again.
    """
    for _ in range(ATTEMPTS):
        unhurried = sandbox.run(SandboxJob("script", source, replace(LIMITS, wall_s=60.0)))
        assert unhurried.ended is EndReason.EXITED
        hurried = sandbox.run(SandboxJob("script", source, replace(LIMITS, wall_s=unhurried.wall_s / 2.5)))
        assert hurried.ended in (EndReason.EXITED, EndReason.STARVED)
        if hurried.ended is EndReason.EXITED and hurried.wall_s > unhurried.wall_s / 2.5:
            return hurried.stdout == b"done\n"
    return False


def test_waiting_for_a_core_is_not_taking_long(crowded: Sandbox) -> None:
    assert passes_a_limit_that_the_machine_uses_up(crowded, WORKER)


def test_processes_that_wait_for_a_core_are_not_taking_long(crowded: Sandbox, tier: Tier) -> None:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    assert passes_a_limit_that_the_machine_uses_up(crowded, FAMILY)


@pytest.mark.parametrize("program", ["time.sleep(60)", "while True: time.sleep(1e-4)"], ids=["long", "often"])
def test_who_sleeps_cannot_blame_the_machine(crowded: Sandbox, program: str) -> None:
    """Who wakes each time waits for a core each time, which is most of its time: still it has an end.

    Only where we ourselves get no core to look is it the machine's failure, and tried again.
    """
    job = SandboxJob("script", f"import time\n{program}".encode(), LIMITS)
    ends = (crowded.run(job).ended for _ in range(ATTEMPTS))
    assert next(ended for ended in ends if ended is not EndReason.STARVED) is EndReason.WALL_LIMIT


@pytest.mark.parametrize("source", [WORKER, FAMILY.replace(b"10", b"1000")], ids=["one", "family"])
def test_a_run_that_never_gets_enough_of_a_core_is_the_machines_failure(
    crowded: Sandbox, tier: Tier, source: bytes
) -> None:
    if source is not WORKER and tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    # Of a seventh of a core a run could use up its limit before it has waited six times as long.
    with spinning(12):
        result = crowded.run(SandboxJob("script", source.replace(b"0.1", b"4.0"), LIMITS))
    assert result.ended is EndReason.STARVED


def test_a_program_that_had_no_time_to_begin_is_not_blamed(tier: Tier) -> None:
    """Which of the two it was, and whether we come in time to end it, is chance: one of many is enough.

    It is one of four where little computes beside, and one of two hundred where much does.
    """
    job = SandboxJob("script", b"", replace(LIMITS, wall_s=1e-6))
    with on_one_core(tier, 1) as sandbox:
        assert any(sandbox.run(job).ended is EndReason.STARVED for _ in range(5000))

"""A run that gets no core is not ended for taking long; one that only sleeps is, however busy the machine."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from whetstone.sandbox import Ended, Job, RunLimits, Sandbox, Tier

WALL_S = 0.4
LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20, wall_s=WALL_S)
# A quarter of its wall clock limit of CPU, of which it gets one seventh, or less where more computes beside.
WORKER = b"import time\nwhile time.process_time() < 0.1: pass\nprint('done')"
SPIN = [sys.executable, "-S", "-c", "while True: pass"]


@pytest.fixture
def crowded(tier: Tier) -> Iterator[Sandbox]:
    """A sandbox on one core, which it shares with six processes that compute without end."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    crowd: list[subprocess.Popen[bytes]] = []
    try:
        with Sandbox({}, tier=tier) as sandbox:
            crowd += [subprocess.Popen(SPIN, start_new_session=True) for _ in range(6)]
            yield sandbox
    finally:
        os.sched_setaffinity(0, cores)
        for process in crowd:
            process.kill()
            process.wait()


def test_waiting_for_a_core_is_not_taking_long(crowded: Sandbox) -> None:
    result = crowded.run(Job("script", WORKER, LIMITS))
    assert result.ended is Ended.EXITED
    assert result.stdout == b"done\n"


def test_sleeping_on_a_busy_machine_is(crowded: Sandbox) -> None:
    result = crowded.run(Job("script", b"import time\ntime.sleep(60)", LIMITS))
    assert result.ended is Ended.WALL_LIMIT


def test_processes_that_wait_for_a_core_are_not_taking_long(crowded: Sandbox, tier: Tier) -> None:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    source = (
        b"import os, time\n"
        b"for _ in range(10):\n"
        b"    if os.fork() == 0:\n"
        b"        while time.process_time() < 0.01: pass\n"
        b"        os._exit(0)\n"
        b"    os.wait()\n"
        b"print('done')"
    )
    result = crowded.run(Job("script", source, LIMITS))
    assert (result.ended, result.stdout) == (Ended.EXITED, b"done\n")


def test_what_never_gets_enough_of_a_core_is_the_machines_failure(crowded: Sandbox) -> None:
    result = crowded.run(Job("script", WORKER.replace(b"0.1", b"4.0"), LIMITS))
    assert result.ended is Ended.STARVED


def test_who_sleeps_again_and_again_cannot_blame_the_machine(crowded: Sandbox) -> None:
    """Each time it wakes it waits for a core, which is most of its time: still it has an end."""
    result = crowded.run(Job("script", b"import time\nwhile True: time.sleep(0.0001)", LIMITS))
    assert result.ended is Ended.WALL_LIMIT

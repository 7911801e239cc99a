"""A run that gets no core is not ended for taking long; one that only sleeps is, however busy the machine."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from whetstone.sandbox import Ended, Job, RunLimits, Sandbox, Tier

WALL_S = 0.4
LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20, wall_s=WALL_S)
# Half of its wall clock limit of CPU, of which it gets one seventh or less.
WORKER = b"import time\nwhile time.process_time() < 0.2: pass\nprint('done')"
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

"""A fork-server that gets no core: its delay is not the program's time, and limits hold meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.processes import descendants, wait_until
from whetstone.sandbox import EndReason, RunLimits, RunResult, Sandbox, SandboxJob, Tier, supervise

LIMITS = RunLimits(cpu_s=30.0, memory_bytes=200 << 20, output_bytes=1 << 20, wall_s=1.0)
WRITES = SandboxJob("script", b"import time\ntime.sleep(0.1)\nprint('done')", LIMITS)


@contextmanager
def kept_from_beginning(tier: Tier, job: SandboxJob) -> Generator[list[RunResult]]:
    """Within the block the fork-server stands still with the job before it; then come the results."""
    before = descendants(os.getpid())
    with Sandbox({}, tier=tier) as sandbox:
        servers = descendants(os.getpid()) - before
        results: list[RunResult] = []
        for server in servers:
            os.kill(server, signal.SIGSTOP)
        try:
            run = sandbox.start(job)
            supervisor = threading.Thread(target=lambda: results.extend(supervise([run])))
            supervisor.start()
            yield results
        finally:
            for server in servers:
                os.kill(server, signal.SIGCONT)
            supervisor.join()
        assert sandbox.run(SandboxJob("script", b"print(1)", replace(LIMITS, wall_s=60.0))).stdout == b"1\n"


def test_a_program_that_begins_after_its_limit_has_all_of_its_time(tier: Tier) -> None:
    with kept_from_beginning(tier, WRITES) as results:
        time.sleep(1.5)
    assert (results[0].ended, results[0].stdout) == (EndReason.EXITED, b"done\n")
    assert results[0].wall_s > 1.5


def test_it_has_no_more_than_that(tier: Tier) -> None:
    with kept_from_beginning(tier, replace(WRITES, payload=b"import time\ntime.sleep(600)")) as results:
        time.sleep(1.5)
    assert results[0].ended is EndReason.WALL_LIMIT


def test_one_that_is_not_begun_within_all_patience_is_the_machines_failure(tier: Tier) -> None:
    with kept_from_beginning(tier, replace(WRITES, limits=replace(LIMITS, wall_s=0.1))) as results:
        time.sleep(1.5)
    assert results[0].ended is EndReason.STARVED


MANY = RunLimits(cpu_s=30.0, memory_bytes=200 << 20, output_bytes=1 << 20, wall_s=60.0)
CHILD = "import os, time\nif os.fork() == 0:\n    {}\ntime.sleep(600)"


@pytest.mark.parametrize(
    ("source", "ended"),
    [
        ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", EndReason.PROCESS_LIMIT),
        (CHILD.format("while True: pass"), EndReason.CPU_LIMIT),
        (CHILD.format("x = bytearray(b'x') * (300 << 20)"), EndReason.MEMORY_LIMIT),
    ],
    ids=["processes", "cpu", "memory"],
)
def test_limits_of_many_processes(tier: Tier, source: str, ended: EndReason) -> None:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    before = descendants(os.getpid())
    with Sandbox({}, tier=tier) as sandbox:
        servers = descendants(os.getpid()) - before
        limits = replace(MANY, cpu_s=0.5) if ended is EndReason.CPU_LIMIT else MANY
        run = sandbox.start(SandboxJob("script", source.encode(), limits))
        wait_until(lambda: len(descendants(os.getpid()) - before - servers) > 1)
        for server in servers:
            os.kill(server, signal.SIGSTOP)
        results = []
        supervisor = threading.Thread(target=lambda: results.extend(supervise([run])))
        try:
            supervisor.start()
            wait_until(lambda: not descendants(os.getpid()) - before - servers)
            assert not run.ended
        finally:
            for server in servers:
                os.kill(server, signal.SIGCONT)
            supervisor.join()
        assert results[0].ended is ended
        assert sandbox.run(SandboxJob("script", b"print(1)", MANY)).stdout == b"1\n"

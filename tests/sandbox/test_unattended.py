"""Limits hold while the fork-server gets no core to say which of many processes is the run's first."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace

import pytest

from tests.processes import descendants, wait_until
from whetstone.sandbox import EndReason, RunLimits, Sandbox, SandboxJob, Tier, supervise

LIMITS = RunLimits(cpu_s=30.0, memory_bytes=200 << 20, output_bytes=1 << 20, wall_s=60.0)
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
        limits = replace(LIMITS, cpu_s=0.5) if ended is EndReason.CPU_LIMIT else LIMITS
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
        assert sandbox.run(SandboxJob("script", b"print(1)", LIMITS)).stdout == b"1\n"

"""A caller that wants no more of a run gets rid of it at once, and keeps its fork-server."""

import os
import socket
import threading

import pytest

from whetstone.sandbox import RunLimits, Sandbox, SandboxJob, SandboxStopped, Tier, supervise

LIMITS = RunLimits(cpu_s=60.0, memory_bytes=512 << 20, output_bytes=1 << 20)
HELLO = SandboxJob("script", b"print('hello')", LIMITS)


@pytest.mark.parametrize("source", [b"while True: pass", b"import time; time.sleep(3600)"])
def test_a_run_stops_when_its_caller_says_so(tier: Tier, source: bytes) -> None:
    read, write = os.pipe()
    with Sandbox({}, tier=tier, stop_fd=read) as sandbox:
        assert sandbox.run(HELLO).stdout == b"hello\n"
        server = sandbox._server
        timer = threading.Timer(0.1, os.write, (write, b"x"))
        timer.start()
        with pytest.raises(SandboxStopped):
            sandbox.run(SandboxJob("script", source, LIMITS))
        timer.join()
        os.read(read, 1)
        assert sandbox.run(HELLO).stdout == b"hello\n"
        assert sandbox._server is server
    os.close(read)
    os.close(write)


def test_a_pair_stops_together(tier: Tier, harness) -> None:
    read, write = os.pipe()
    os.close(write)  # a caller that is gone counts as well
    near, far = socket.socketpair()
    with (
        Sandbox({"linked": harness}, tier=tier, stop_fd=read) as one,
        Sandbox({"linked": harness}, tier=tier) as other,
    ):
        first = one.start(SandboxJob("linked", b"hear", LIMITS, link=near.detach()))
        second = other.start(
            SandboxJob("script", b"import time; time.sleep(3600)", LIMITS, link=far.detach())
        )
        with pytest.raises(SandboxStopped):
            supervise([first, second])
        assert first.ended
        assert second.ended
        assert other.run(HELLO).stdout == b"hello\n"
    os.close(read)

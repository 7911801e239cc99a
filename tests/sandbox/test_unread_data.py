"""Unread data in sockets counts as memory, although no process holds it and no control group counts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whetstone.sandbox import EndReason, RunLimits, RunResult, Sandbox, SandboxJob, Tier, fork_server

pytestmark = pytest.mark.isolation

FILL = """
import os, socket, time
held = []
def fill(sender):
    sender.setblocking(False)
    try:
        while True: sender.send(b'x' * 65536)
    except BlockingIOError:
        pass
def server(name, backlog=4096):
    made = socket.socket(socket.AF_UNIX); made.bind(name); made.listen(backlog); held.append(made)
def connect(name):
    made = socket.socket(socket.AF_UNIX); made.connect(name); return made
"""
TOO_MUCH = {
    "connections that nobody accepts": (
        "server('s')\nfor _ in range(1500):\n    c = connect('s'); fill(c); c.close()\ntime.sleep(1)\n"
    ),
    "several queues": (
        "for name in 'abcdefgh':\n    server(name)\n"
        "    for _ in range(200):\n        c = connect(name); fill(c); c.close()\ntime.sleep(1)\n"
    ),
    "pairs of many processes": (
        "for _ in range(8):\n    if os.fork() == 0:\n        for _ in range(100):\n"
        "            p = socket.socketpair(); fill(p[0]); fill(p[1]); held.append(p)\n"
        "        time.sleep(60)\ntime.sleep(3)\n"
    ),
    "accepted and never read": (
        "for _ in range(8):\n    if os.fork() == 0:\n        name = str(os.getpid()); server(name)\n"
        "        for _ in range(110):\n"
        "            c = connect(name); held.append(held[0].accept()[0]); fill(c); held.append(c)\n"
        "        time.sleep(60)\ntime.sleep(3)\n"
    ),
    "a long queue of small connections": (
        "server('s')\nfor _ in range(1500): connect('s').send(b'x' * 60000)\ntime.sleep(1)\n"
    ),
}
LITTLE = {
    "many pairs": "for _ in range(100):\n    p = socket.socketpair(); p[0].send(b'x' * 9); held.append(p)\n",
    "a queue": "server('s', 100)\nfor _ in range(99): held.append(connect('s'))\n",
    "connections one after the other": (
        "server('s', 100)\nfor _ in range(3000):\n"
        "    c = connect('s'); c.send(b'x'); held[0].accept()[0].close(); c.close()\n"
    ),
}


@pytest.fixture(scope="module")
def ungrouped(tier: Tier) -> Iterator[Sandbox]:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process and no listening socket there")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "make_group", lambda: None)
        with Sandbox({}, tier=tier) as sandbox:
            yield sandbox


def ran(sandbox: Sandbox, code: str) -> RunResult:
    limits = RunLimits(20.0, 128 << 20, 1 << 20)
    return sandbox.run(SandboxJob("script", (FILL + code + "print('done')").encode(), limits))


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_unread_data_is_too_much_memory(ungrouped: Sandbox, name: str) -> None:
    assert ran(ungrouped, TOO_MUCH[name]).ended is EndReason.MEMORY_LIMIT


@pytest.mark.parametrize("name", LITTLE)
def test_sockets_with_little_data_count_nothing(ungrouped: Sandbox, name: str) -> None:
    result = ran(ungrouped, LITTLE[name])
    assert (result.ended, result.stdout) == (EndReason.EXITED, b"done\n"), result.stderr
    assert result.peak_bytes < 100 << 20


OF_ONE_PROCESS = {
    "one thread": TOO_MUCH["connections that nobody accepts"],
    "several queues": TOO_MUCH["several queues"],
    "another thread": (
        "import threading\nserver('s')\ndef work():\n"
        "    for _ in range(3000):\n        c = connect('s'); fill(c); c.close()\n"
        "threading.Thread(target=work).start()\ntime.sleep(60)\n"
    ),
}


@pytest.mark.parametrize("name", OF_ONE_PROCESS)
def test_a_process_that_its_control_group_stops_is_ended_at_once(tier: Tier, name: str) -> None:
    """It would otherwise wait until its wall time has passed, which a stall even prolongs."""
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has no listening socket there")
    with Sandbox({}, tier=tier) as sandbox:
        result = ran(sandbox, OF_ONE_PROCESS[name])
    assert result.ended is EndReason.MEMORY_LIMIT
    assert result.wall_s < 30

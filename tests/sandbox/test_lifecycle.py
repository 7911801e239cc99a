"""Fork-servers come, fail, are replaced and go, and leave nothing behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import descendants, wait_until
from tests.tiers import refusal
from whetstone.core.errors import SandboxUnavailable
from whetstone.sandbox import (
    EndReason,
    RunLimits,
    RunResult,
    Sandbox,
    SandboxFault,
    SandboxJob,
    SandboxStopped,
    Tier,
    supervise,
)

pytestmark = pytest.mark.isolation

LIMITS = RunLimits(cpu_s=5.0, memory_bytes=512 << 20, output_bytes=1 << 20)
HELLO = SandboxJob("script", b"print('hello')", LIMITS)
SLEEP = SandboxJob("script", b"import time; time.sleep(60)", LIMITS)


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_many_runs_leave_nothing_over(tier, harness):
    mounts = Path("/proc/self/mountinfo").read_text()
    files, processes = open_files(), descendants(os.getpid())
    places = {*os.listdir("/tmp"), *os.listdir("/dev/shm")}
    with Sandbox({"linked": harness}, tier=tier) as sandbox:
        sandbox.run(HELLO)
        while_open, servers = open_files(), descendants(os.getpid())
        for _ in range(15):
            assert sandbox.run(HELLO).stdout == b"hello\n"
            left = "open('left', 'w')\nimport threading\nthreading.Thread(target=input, daemon=True).start()"
            sandbox.run(SandboxJob("script", left.encode(), LIMITS))
            assert sandbox.run(SandboxJob("script", b"1/0", LIMITS)).exit_code == 1
        assert sandbox.run(SandboxJob("script", SLEEP.payload, RunLimits(5, 1 << 29, 10, 0.1))).signal == 9
        assert open_files() == while_open
        assert descendants(os.getpid()) == servers
    assert open_files() == files
    assert descendants(os.getpid()) == processes
    assert Path("/proc/self/mountinfo").read_text() == mounts
    now = {*os.listdir("/tmp"), *os.listdir("/dev/shm")}
    assert [name for name in now - places if name.startswith(f"whetstone-{os.getpid()}-")] == []


def kill_servers_of(before: set[int]) -> None:
    """Stopped first, lest a fork-server still reports the end of its run."""
    servers = descendants(os.getpid()) - before
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def test_a_fork_server_killed_in_a_run_is_a_fault_and_is_replaced(tier):
    before = descendants(os.getpid())
    with Sandbox({}, tier=tier) as sandbox:
        run = sandbox.start(SLEEP)
        kill_servers_of(before)
        with pytest.raises(SandboxFault):
            supervise([run])
        assert sandbox.run(HELLO).stdout == b"hello\n"
    assert descendants(os.getpid()) == before


def test_a_fork_server_killed_while_idle_is_replaced_silently(tier):
    before = descendants(os.getpid())
    with Sandbox({}, tier=tier) as sandbox:
        servers = descendants(os.getpid()) - before
        kill_servers_of(before)
        wait_until(lambda: not any(alive(pid) for pid in servers))
        assert sandbox.run(HELLO).stdout == b"hello\n"


def test_a_program_outlives_neither_its_caller_nor_leaves_files(tier):
    source = (
        "import os, time\nfrom whetstone.sandbox import *\n"
        f"s = Sandbox({{}}, tier=Tier.{tier.name})\n"
        "s.start(SandboxJob('script', b'while True: pass', RunLimits(60, 1 << 29, 100)))\n"
        "print(s._server.directory, flush=True); time.sleep(60)"
    )
    caller = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    directory = caller.stdout.readline().strip()
    ours = descendants(caller.pid)
    assert ours
    caller.kill()
    caller.communicate()
    wait_until(lambda: not any(alive(pid) for pid in ours))
    assert not directory or not os.path.exists(directory)


@pytest.mark.parametrize("victim", [0, 1], ids=["the supervisor", "the one that forks"])
def test_a_program_ends_with_either_process_of_its_fork_server(tier, victim):
    before = descendants(os.getpid())
    sandbox = Sandbox({}, tier=tier)
    sandbox.start(SandboxJob("script", b"import time\nwhile True: time.sleep(0.01)", LIMITS))
    wait_until(lambda: len(descendants(os.getpid()) - before) == 3)
    supervisor, template, program = sorted(descendants(os.getpid()) - before)
    os.kill((supervisor, template)[victim], signal.SIGKILL)
    wait_until(lambda: not alive(template) and not alive(program))
    sandbox.close()
    assert descendants(os.getpid()) == before


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_run_at_a_time(sandbox):
    run = sandbox.start(HELLO)
    with pytest.raises(RuntimeError, match="has not ended"):
        sandbox.start(HELLO)
    assert supervise([run])[0].stdout == b"hello\n"


def test_closing_ends_an_unsupervised_run(tier):
    before = descendants(os.getpid())
    files = open_files()
    sandbox = Sandbox({}, tier=tier)
    sandbox.start(SLEEP)
    sandbox.close()
    assert descendants(os.getpid()) == before
    assert open_files() == files
    with pytest.raises(RuntimeError, match="closed"):
        sandbox.start(HELLO)


def test_an_unknown_harness_names_the_known(sandbox):
    with pytest.raises(KeyError, match="script"):
        sandbox.start(SandboxJob("absent", b"", LIMITS))
    assert sandbox.run(HELLO).exit_code == 0


def test_a_harness_returns_its_result(sandbox):
    result = sandbox.run(SandboxJob("linked", b"return", LIMITS))
    assert (result.ended, result.exit_code, result.result) == (EndReason.EXITED, 0, b"returned")


def test_a_broken_harness_is_refused_with_its_error(tier, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import no_such_module")
    with pytest.raises(SandboxUnavailable, match="no_such_module"):
        Sandbox({"broken": path}, tier=tier)


def test_the_builtin_name_cannot_be_taken(harness):
    with pytest.raises(ValueError, match="builtin"):
        Sandbox({"script": harness})


def test_a_tier_below_the_minimum_is_refused():
    with pytest.raises(SandboxUnavailable, match="below the minimum"):
        Sandbox({}, tier=Tier.RESTRICTED, minimum_tier=Tier.USERNS)


@pytest.mark.process
def test_the_strongest_tier_is_the_default():
    with Sandbox({}) as sandbox:
        assert sandbox.tier is max(tier for tier in Tier if not refusal(tier))


def linked(lead: Sandbox, partner: Sandbox, lead_payload: bytes, partner_payload: bytes, limits=LIMITS):
    ours, theirs = (end.detach() for end in socket.socketpair())
    runs = [
        lead.start(SandboxJob("linked", lead_payload, limits, link=ours)),
        partner.start(SandboxJob("linked", partner_payload, LIMITS, link=theirs)),
    ]
    for fd in (ours, theirs):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    return supervise(runs)


@pytest.fixture(scope="module")
def partner(tier, harness):
    with Sandbox({"linked": harness}, tier=tier) as partner:
        yield partner


def test_linked_runs_talk_and_end_together(sandbox, partner):
    lead, other = linked(sandbox, partner, b"ask", b"echo")
    assert (lead.ended, lead.result) == (EndReason.EXITED, b"HELLO")
    assert (other.ended, other.exit_code, other.result) == (EndReason.EXITED, 0, b"link ended")


def test_a_partner_that_goes_on_is_killed(sandbox, partner):
    lead, other = linked(sandbox, partner, b"return", b"spin")
    assert (lead.ended, lead.result) == (EndReason.EXITED, b"returned")
    assert (other.ended, other.exit_code) == (EndReason.KILLED, None)


def test_a_partner_that_ends_first_ends_the_link_for_the_leader(sandbox, partner):
    lead, other = linked(sandbox, partner, b"hear", b"return")
    assert (lead.ended, lead.result) == (EndReason.EXITED, b"got ")
    assert other.result == b"returned"


def test_a_leader_over_its_limit_takes_the_partner_along(sandbox, partner):
    lead, other = linked(sandbox, partner, b"spin", b"spin", RunLimits(0.2, 1 << 29, 100))
    assert (lead.ended, other.ended) == (EndReason.CPU_LIMIT, EndReason.KILLED)


def test_a_run_may_take_longer_than_the_fork_server_has_to_answer(
    run: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whetstone.sandbox.run._ANSWER_TIMEOUT_S", 0.4)
    result = run("import time; time.sleep(1.2); print('done')")
    assert (result.ended, result.stdout) == (EndReason.EXITED, b"done\n")


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

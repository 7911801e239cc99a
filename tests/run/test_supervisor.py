"""Processes that work together: who is started again, who is told what, and in which order they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from whetstone.core.errors import INTERRUPTED, UserError
from whetstone.run.roles.supervise import Role, Supervisor, start_local

pytestmark = pytest.mark.process

WAITS = """
import os, signal
def told(number, frame):
    os.write(1, b"told\\n")
    os._exit(130)
signal.signal(signal.SIGTERM, told)
signal.signal(signal.SIGINT, told)
os.write(1, b"up\\n")
while True:
    signal.pause()
"""
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""
DIES = "import os, signal; print('up', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
REFUSES = "import sys; print('whetstone: no such model'); sys.exit(2)"
UNTIL = (
    "import os, sys, time\nprint('up', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
)


def role(name: str, program: str, *arguments: str, leads: bool = False, stays: bool = False) -> Role:
    command = [sys.executable, "-I", "-S", "-c", program, *arguments]
    return Role(
        name,
        lambda: start_local(command),
        is_ready=lambda line: line == "up",
        ends_run=leads,
        outlives_others=stays,
    )


@dataclass
class Heard:
    """What the roles and the supervisor say, and what is done when something was said."""

    lines: list[str] = field(default_factory=list[str])
    when: dict[str, Callable[[], object]] = field(default_factory=dict[str, Callable[[], object]])

    def note(self, line: str) -> None:
        self.lines.append(line)
        self.when.pop(line, lambda: None)()


def supervise(*roles: Role, heard: Heard, restarts: int = 5) -> int:
    supervisor = Supervisor(
        roles,
        restarts=restarts,
        on_line=lambda name, line: heard.note(f"{name}: {line}"),
        log=lambda line: heard.note(f"run: {line}"),
        drain_s=600.0,
    )
    return asyncio.run(supervisor.run())


def told_by(number: signal.Signals) -> Callable[[], object]:
    return lambda: os.kill(os.getpid(), number)


def test_a_dead_role_is_started_again_and_the_others_are_ended_when_the_leading_one_is_done(
    tmp_path: Path,
) -> None:
    done = tmp_path / "done"
    deaths = "run: replica ended by SIGKILL; restarting (2 of 3)"
    heard = Heard(when={deaths: done.touch})
    flow, replica = role("flow", WAITS, stays=True), role("replica", DIES)
    assert (
        supervise(flow, role("trainer", UNTIL, str(done), leads=True), replica, heard=heard, restarts=3) == 0
    )
    assert heard.lines[:3] == ["flow: up", "trainer: up", "replica: up"]
    assert "run: replica ended by SIGKILL; restarting (1 of 3)" in heard.lines
    assert heard.lines[-1] == "flow: told"


def test_a_role_that_dies_too_often_ends_the_run_and_says_so() -> None:
    heard = Heard()
    with pytest.raises(UserError, match=r"replica ended by SIGKILL, for the 3\. time"):
        supervise(role("trainer", WAITS, leads=True), role("replica", DIES), heard=heard, restarts=2)
    assert "trainer: told" in heard.lines


def test_a_refused_input_ends_the_run_with_the_error_of_the_role() -> None:
    heard = Heard()
    with pytest.raises(UserError, match="the trainer role refuses\nwhetstone: no such model"):
        supervise(role("flow", WAITS, stays=True), role("trainer", REFUSES, leads=True), heard=heard)
    assert heard.lines.count("trainer: whetstone: no such model") == 1
    assert heard.lines[-1] == "flow: told"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_drains_and_whoever_stays_is_told_last(number: signal.Signals) -> None:
    heard = Heard(when={"replica: up": told_by(number)})
    roles = (role("flow", WAITS, stays=True), role("trainer", WAITS, leads=True), role("replica", WAITS))
    assert supervise(*roles, heard=heard) == INTERRUPTED
    assert sorted(heard.lines[-3:-1]) == ["replica: told", "trainer: told"]
    assert heard.lines[-1] == "flow: told"


def test_a_second_signal_ends_at_once_whoever_does_not_listen() -> None:
    heard = Heard(when={"trainer: up": told_by(signal.SIGINT), "replica: told": told_by(signal.SIGINT)})
    roles = (role("flow", DEAF, stays=True), role("replica", WAITS), role("trainer", DEAF, leads=True))
    assert supervise(*roles, heard=heard) == INTERRUPTED
    assert "run: ending now" in heard.lines


def test_a_replica_that_leaves_is_not_started_again(tmp_path: Path) -> None:
    done = tmp_path / "done"
    heard = Heard(when={"run: replica has ended; the other roles continue": done.touch})
    trainer, replica = role("trainer", UNTIL, str(done), leads=True), role("replica", "print('up')")
    assert supervise(trainer, replica, heard=heard) == 0
    assert heard.lines.count("replica: up") == 1


def test_a_run_that_several_lead_ends_with_the_last_and_needs_no_replica_after_the_first(
    tmp_path: Path,
) -> None:
    done = tmp_path / "done"
    heard = Heard(when={"run: replica has ended; it is not needed any more": done.touch})
    first = role("verifier", "print('up')", leads=True)
    coder = role("coder", UNTIL, str(done), leads=True)
    assert supervise(first, coder, role("replica", DIES), heard=heard, restarts=1000) == 0
    assert heard.lines.count("verifier: up") == 1


def test_a_run_ends_when_somebody_else_ends_one_of_those_that_lead() -> None:
    heard = Heard()
    ended = role("verifier", "import sys; print('up', flush=True); sys.exit(130)", leads=True)
    assert supervise(role("coder", WAITS, leads=True), ended, heard=heard) == INTERRUPTED
    assert heard.lines[-1] == "coder: told"

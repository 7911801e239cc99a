"""Between its calls a session computes nothing, whatever could continue its processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.beside import data_beside
from tests.processes import wait_until
from tests.sandbox.sessions import SMALL, played, processes_of, started
from whetstone.sandbox import (
    CallEnd,
    PythonSessions,
    SessionLimits,
    SessionResult,
    Tier,
    fork_server,
)
from whetstone.sandbox.accounting import Accounting
from whetstone.sandbox.cgroup import make_freezer, make_group
from whetstone.sandbox.session_run import SessionRun
from whetstone.sandbox.zygote import syscall_numbers as calls
from whetstone.sandbox.zygote.lockdown import COUNTED

pytestmark = pytest.mark.isolation

LIMITS = replace(SMALL, cpu_s=1.0, total_cpu_s=20.0, memory_bytes=128 << 20, wall_s=60.0)
AT_REST_S = 0.02
"""A process that is continued uses much more within the time that a test waits."""

THREADS = "spin_in_thread()\n"
_CONTENT = data_beside(__file__)
ATTACKS: dict[str, str] = _CONTENT["attacks"]
OF_SEVERAL_PROCESSES: dict[str, str] = _CONTENT["several_processes"]
TIMERS: dict[str, str] = _CONTENT["timers"]


def code_of(attack: str) -> str:
    """Return the attack with the numbers of its system calls."""
    known = {"rt_sigqueueinfo": (129, 138), "mq_open": (240, 180), "mq_notify": (244, 184)}
    column = 0 if calls.audit_arch() == calls.X86_64 else 1
    numbers = {name: calls.number(name) for name in ("gettid", "exit", "clone")}
    numbers |= {name: pair[column] for name, pair in known.items()}
    lines = [f"NR_{name} = {number}" for name, number in numbers.items()]
    return "\n".join([_CONTENT["helpers"], *lines, attack])


def stopped_by(
    tier: Tier, means: str, patch: pytest.MonkeyPatch, limits: SessionLimits = LIMITS
) -> PythonSessions:
    """Start sessions that are stopped by a control group, or by signals on a machine without one.

    Signals need a list of the processes. It is that of a namespace, or of a group that cannot freeze.
    """
    if means != "control group":
        patch.setattr(fork_server, "make_freezer", lambda group: None)
    if means == "signals":
        patch.setattr(fork_server, "make_group", lambda: None)
    elif means == "signals to the list of a group":
        if tier is Tier.RESTRICTED or not (group := make_group()) or not group.controllers >= COUNTED:
            pytest.skip("no control group counts the processes here")
        group.remove()
        patch.setattr(fork_server, "Accounting", lambda group, table: Accounting(group, None))
    elif (freezer := make_freezer(None)) is None:
        pytest.skip("no control group can be made here")
    else:
        freezer.remove()
    return started(tier, limits)


@pytest.fixture(scope="module", params=["control group", "signals", "signals to the list of a group"])
def sessions(request: pytest.FixtureRequest, tier: Tier) -> Iterator[PythonSessions]:
    with pytest.MonkeyPatch.context() as patch:
        sessions = stopped_by(tier, request.param, patch)
        yield sessions
        sessions.close_now()


def used_s(pids: set[int]) -> float:
    """Return the CPU seconds of all threads of these processes, as far as they live."""
    total = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(thread.read_text().split()[0])
    return total / 1e9


class Outcome(NamedTuple):
    """What became of an attack."""

    result: SessionResult
    used_s: float
    """CPU seconds between its call and the next one."""
    started: bool
    """Whether a process was started in that time."""
    later: SessionResult
    """The result of the next call."""


async def attacked(sessions: PythonSessions, attacks: Sequence[str]) -> list[Outcome]:
    """Return the outcome of each attack. They are at rest at the same time, which saves most of it."""
    opened = [await sessions.open() for _ in attacks]
    pairs = zip(opened, attacks, strict=True)
    results = await asyncio.gather(*(session.run(code_of(attack)) for session, attack in pairs))
    await asyncio.sleep(0.3)  # a frozen process may need a core to come to rest
    began = [processes_of(session) for session in opened]
    before = [used_s(pids) for pids in began]
    await asyncio.sleep(1.0)
    ended = [processes_of(session) for session in opened]
    # A session that a limit has ended meanwhile uses nothing any more.
    used = [used_s(now) - old if now else 0.0 for now, old in zip(ended, before, strict=True)]
    later = await asyncio.gather(*(session.run("'next'") for session in opened))
    await asyncio.gather(*(session.close() for session in opened))
    started = [not now <= old for now, old in zip(ended, began, strict=True)]
    return [Outcome(*each) for each in zip(results, used, started, later, strict=True)]


@pytest.fixture(scope="module")
def outcomes(sessions: PythonSessions, tier: Tier) -> dict[str, Outcome]:
    attacks = ATTACKS if tier is Tier.RESTRICTED else {**ATTACKS, **OF_SEVERAL_PROCESSES}
    found: dict[str, Outcome] = {}
    for names in batched(attacks, 8):
        each = asyncio.run(attacked(sessions, [attacks[name] for name in names]))
        found.update(zip(names, each, strict=True))
    return found


def batched(names: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, size)):
        yield batch


@pytest.mark.parametrize("name", [*ATTACKS, *OF_SEVERAL_PROCESSES])
def test_nothing_runs_between_two_calls(outcomes: dict[str, Outcome], tier: Tier, name: str) -> None:
    if name in OF_SEVERAL_PROCESSES and tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    outcome = outcomes[name]
    assert outcome.used_s < AT_REST_S, outcome
    assert not outcome.started, outcome
    over = {CallEnd.CPU_LIMIT, CallEnd.PROCESS_LIMIT, CallEnd.EXITED, CallEnd.MEMORY_LIMIT}
    assert outcome.result.ended in {CallEnd.DONE, CallEnd.ERROR} | over, outcome
    later = outcome.later
    assert later.ended is CallEnd.SESSION_ENDED or later.text == "'next'\n" or later.ended in over, outcome


@pytest.mark.parametrize("kind", TIMERS)
def test_no_timer_can_send_a_signal_of_its_choice(sessions: PythonSessions, kind: str) -> None:
    [result] = played(sessions, code_of(TIMERS[kind]))
    assert (result.text, result.ended) == ("False\n", CallEnd.DONE)


def test_a_child_that_would_send_sigcont_at_its_end_is_refused(sessions: PythonSessions, tier: Tier) -> None:
    child = "pid = libc.syscall(NR_clone, int({}), 0, 0, 0, 0)\nif pid == 0: os._exit(0)\npid > 0"
    ends = [played(sessions, code_of(child.format(number)))[0].text for number in ("CONT", "STOP", "17")]
    assert ends == ["False\n", "False\n", "False\n" if tier is Tier.RESTRICTED else "True\n"]


async def left_alone(sessions: PythonSessions, code: str) -> tuple[SessionResult, bool, SessionResult]:
    """Return the results of this call and of the first one after the session's end, and whether a process
    was left."""
    async with await sessions.open() as session:
        first = await session.run(code)
        await asyncio.to_thread(wait_until, lambda: not session.alive)
        left = bool(processes_of(session))
        return first, left, await session.run("1")


HOARDING = _CONTENT["hoarding"]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"memory_bytes": 128 << 20, "cpu_s": 20.0}, "128 MiB of memory"),
        ({"cpu_s": 0.5}, "0.5 s of CPU time"),
    ],
    ids=["memory", "cpu"],
)
def test_a_limit_that_is_exceeded_between_two_calls_ends_the_session_at_once(
    tier: Tier, limits: dict[str, float], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if a program had found a means to continue itself that nobody knows.
    monkeypatch.setattr(SessionRun, "_stop", lambda *_: None)
    hoards = "memory_bytes" in limits
    sessions = started(tier, replace(LIMITS, **limits))
    try:
        first, left, later = asyncio.run(left_alone(sessions, HOARDING if hoards else code_of(THREADS)))
    finally:
        sessions.close_now()
    assert (first.ended, left, later.ended) == (CallEnd.DONE, False, CallEnd.SESSION_ENDED)
    assert reason in later.text

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

SPIN = """
import ctypes, os, signal, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
CONT, STOP = signal.SIGCONT, signal.SIGSTOP
def spin():
    while True: pass
def spin_in_thread():
    threading.Thread(target=spin, daemon=True).start()
class Event(ctypes.Structure):
    _fields_ = [('value', ctypes.c_void_p), ('signo', ctypes.c_int), ('notify', ctypes.c_int),
                ('tid', ctypes.c_int), ('rest', ctypes.c_char * 44)]
def timer(clock=1, notify=0, tid=0, signo=CONT, after=0.05, again=0.01):
    made = ctypes.c_void_p()
    event = Event(None, signo, notify, tid, b'')
    if libc.timer_create(clock, ctypes.byref(event), ctypes.byref(made)):
        return False
    times = struct.pack('4q', *(n for s in (again, after) for n in (int(s), int(s % 1 * 1e9))))
    libc.timer_settime(made, 0, times, None)
    return True
"""
THREADS = "spin_in_thread()\n"
ATTACKS = {
    "timer that sends SIGCONT": "timer()\n" + THREADS,
    "timer of the time of day": "timer(clock=0)\n" + THREADS,
    "timer of the time since boot": "timer(clock=7)\n" + THREADS,
    "timer of the CPU time of the process": "timer(clock=2, after=1e-3, again=1e-3)\n" + THREADS,
    "timer that fires once": "timer(after=0.3, again=0)\n" + THREADS,
    "timer for the first thread": "timer(notify=4, tid=libc.syscall(NR_gettid))\n" + THREADS,
    "timer for another thread": (
        "def other():\n    timer(notify=4, tid=libc.syscall(NR_gettid)); spin()\n"
        "threading.Thread(target=other, daemon=True).start()\ntime.sleep(0.05)\n"
    ),
    "timer with a thread of the library": (
        "BACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)\nback = BACK(lambda _: os.kill(os.getpid(), CONT))\n"
        "event = Event(None, 0, 2, 0, b'')\n"
        "ctypes.memmove(ctypes.addressof(event) + 16, ctypes.byref(back), 8)\n"
        "made = ctypes.c_void_p()\n"
        "if not libc.timer_create(1, ctypes.byref(event), ctypes.byref(made)):\n"
        "    libc.timer_settime(made, 0, struct.pack('4q', 0, 10**7, 0, 10**7), None)\n" + THREADS
    ),
    "timer with the default event": (
        "made = ctypes.c_void_p()\nsignal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), CONT))\n"
        "if not libc.timer_create(1, None, ctypes.byref(made)):\n"
        "    libc.timer_settime(made, 0, struct.pack('4q', 0, 10**7, 0, 10**7), None)\n" + THREADS
    ),
    "interval timer": (
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), CONT))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05, 0.01)\n" + THREADS
    ),
    "alarm": (
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), CONT))\nsignal.alarm(1)\n" + THREADS
    ),
    "signal of a pipe": (
        "import fcntl\nr, w = os.pipe()\n"
        "for command, value in ((fcntl.F_SETOWN, os.getpid()), (10, CONT), (fcntl.F_SETFL, os.O_ASYNC)):\n"
        "    try: fcntl.fcntl(r, command, value)\n    except OSError: pass\nos.write(w, b'x')\n" + THREADS
    ),
    "signal of the link": (
        "import fcntl\n"
        "for command, value in ((fcntl.F_SETOWN, os.getpid()), (10, CONT), (fcntl.F_SETFL, os.O_ASYNC)):\n"
        "    try: fcntl.fcntl(8, command, value)\n    except OSError: pass\n" + THREADS
    ),
    "signal of a timer descriptor": (
        "import fcntl\nfd = libc.timerfd_create(1, 0)\n"
        "libc.timerfd_settime(fd, 0, struct.pack('4q', 0, 10**7, 0, 10**7), None)\n"
        "for command, value in ((fcntl.F_SETOWN, os.getpid()), (10, CONT), (fcntl.F_SETFL, os.O_ASYNC)):\n"
        "    try: fcntl.fcntl(fd, command, value)\n    except OSError: pass\n" + THREADS
    ),
    "owner of a descriptor by ioctl": (
        "import fcntl\nr, w = os.pipe()\n"
        "for request in (0x8901, 0x8902, 0x5452):\n"
        "    try: fcntl.ioctl(r, request, struct.pack('i', os.getpid()))\n    except OSError: pass\n"
        + THREADS
    ),
    "message queue": (
        "event = Event(None, CONT, 0, 0, b'')\n"
        "q = libc.syscall(NR_mq_open, b'q', os.O_CREAT | os.O_RDWR, 0o600, None)\n"
        "libc.syscall(NR_mq_notify, q, ctypes.byref(event))\n" + THREADS
    ),
    "queued signal": (
        "info = struct.pack('iiii', CONT, 0, -1, 0) + bytes(112)\n"
        "def again():\n    while True:\n        libc.syscall(NR_rt_sigqueueinfo, os.getpid(), CONT, info)\n"
        "threading.Thread(target=again, daemon=True).start()\n"
    ),
    "threads that continue the process": (
        "def again():\n    while True: os.kill(os.getpid(), CONT)\n"
        "for _ in range(3): threading.Thread(target=again, daemon=True).start()\n"
    ),
    "first thread that ends": (
        "spin_in_thread()\n"
        "def answer():\n    time.sleep(0.2); os.write(8, struct.pack('=QB', 1, 1)); spin()\n"
        "threading.Thread(target=answer, daemon=True).start()\nlibc.syscall(NR_exit, 0)\n"
    ),
    "death signal": "libc.prctl(1, CONT, 0, 0, 0)\n" + THREADS,
    "ring of the kernel": (
        "ring = libc.syscall(425, 8, bytes(120))\nfor fd in range(3, 64):\n"
        "    libc.syscall(426, fd, 1, 0, 0, None, 0)\n" + THREADS
    ),
}
OF_SEVERAL_PROCESSES = {
    "child that continues all": ("if os.fork() == 0:\n    while True: os.kill(-1, CONT)\nspin_in_thread()\n"),
    "children that continue each other": (
        "for _ in range(4):\n    if os.fork() == 0:\n        while True: os.kill(-1, CONT)\n"
    ),
    "child that sleeps in between": (
        "for _ in range(2):\n    if os.fork() == 0:\n"
        "        while True: time.sleep(0.0005); os.kill(-1, CONT)\n"
        "spin_in_thread()\n"
    ),
    "orphan that forks for ever": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    while True:\n"
        "        if os.fork(): os._exit(0)\n"
        "spin_in_thread()\n"
    ),
    "children whose end is SIGCONT": (
        "def child():\n    return libc.syscall(NR_clone, int(CONT), 0, 0, 0, 0)\n"
        "for _ in range(3):\n    if os.fork() == 0:\n        while True:\n            pid = child()\n"
        "            if pid == 0: os._exit(0)\n            if pid < 0: spin()\n"
        "            libc.waitpid(pid, None, 0x40000000)\n"
        "spin_in_thread()\n"
    ),
    "child of vfork": (
        "def spawn():\n    for _ in range(3):\n        if libc.vfork() == 0: spin()\n"
        "if os.fork() == 0: libc.vfork() == 0 and spin()\nspin_in_thread()\n"
    ),
    "orphaned process group": (
        "if os.fork() == 0:\n    os.setpgid(0, 0)\n    if os.fork() == 0:\n        time.sleep(0.05)\n"
        "        while True:\n            os.kill(0, STOP)\n"
        "    while True:\n        if os.fork() == 0: os._exit(0)\n        os.wait()\nspin_in_thread()\n"
    ),
    "child with a timer": (
        "if os.fork() == 0:\n    timer()\n    spin()\n"
        "if os.fork() == 0:\n    timer(after=0.2)\n    os.kill(-1, CONT)\n    spin()\ntime.sleep(0.05)\n"
    ),
    "another program": (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "time.sleep(0.3)\n"
    ),
    "shell with jobs": (
        "import subprocess\n"
        "subprocess.Popen(['sh', '-mc', 'while :; do :; done & while :; do kill -CONT 0 $!; done'])\n"
        "time.sleep(0.2)\n"
    ),
    "processes that own a signal of a pipe": (
        "import fcntl\nr, w = os.pipe()\n"
        "if os.fork() == 0:\n    while True: os.write(w, b'x'); os.read(r, 1)\n"
        "for command, value in ((fcntl.F_SETOWN, os.getpid()), (10, CONT), (fcntl.F_SETFL, os.O_ASYNC)):\n"
        "    try: fcntl.fcntl(r, command, value)\n    except OSError: pass\nspin_in_thread()\n"
    ),
}


def code_of(attack: str) -> str:
    """Return the attack with the numbers of its system calls."""
    known = {"rt_sigqueueinfo": (129, 138), "mq_open": (240, 180), "mq_notify": (244, 184)}
    column = 0 if calls.audit_arch() == calls.X86_64 else 1
    numbers = {name: calls.number(name) for name in ("gettid", "exit", "clone")}
    numbers |= {name: pair[column] for name, pair in known.items()}
    lines = [f"NR_{name} = {number}" for name, number in numbers.items()]
    return "\n".join([SPIN, *lines, attack])


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


TIMERS = {
    "signal": "timer()",
    "thread": "timer(notify=4, tid=libc.syscall(NR_gettid))",
    "nothing": "timer(notify=1)",
    "default event": "libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0",
    "other signal": "timer(signo=10)",
}


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


HOARDING = """
import threading, time
def grow():
    time.sleep(0.3)
    held = []
    while True: held.append(bytearray(b'x') * (1 << 20))
threading.Thread(target=grow, daemon=True).start()
"""


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

"""Programs that attack their session end it, or show text of their own. Each has an honest twin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from tests.sandbox.sessions import SMALL, played, started
from whetstone.sandbox import CallEnd, PythonSessions, Tier

pytestmark = pytest.mark.isolation

DONE, ERROR, EXITED = CallEnd.DONE, CallEnd.ERROR, CallEnd.EXITED
FORGE = "import os, struct, time\nos.write(8, struct.pack('=QB', {}, {}))\n"
OF_MACHINE = f"""
import os
found = []
for pid in (1, os.getppid(), {os.getpid()}):
    for name in ("environ", "mem", "maps", "cmdline", "status"):
        try: found.append(open(f"/proc/{{pid}}/{{name}}", "rb").read(1))
        except (OSError, OverflowError): pass
for path in ("/etc/passwd", "/etc/shadow", "/root", {__file__!r}, "/proc/self/environ"):
    try: found.append(open(path, "rb").read(1))
    except OSError: pass
found, sorted(os.environ)
"""


class Attack(NamedTuple):
    """Calls of a session, how the last one may end, and calls of a twin with the text of its last one."""

    calls: tuple[str, ...]
    ends: set[CallEnd]
    twin: tuple[str, ...]
    text: str
    processes: bool = False
    """Whether it needs a tier on which a program may start processes."""


ATTACKS = {
    "forged answer": Attack(
        (FORGE.format(1, 1) + "print('shown')", "'next'"),
        {EXITED, CallEnd.SESSION_ENDED},
        ("import os\nr, w = os.pipe()\nos.write(w, b'answer')", "os.read(r, 9)"),
        "b'answer'\n",
    ),
    "forged answer of a later call": Attack(
        (FORGE.format(2, 1), "while True: pass"), {EXITED, CallEnd.SESSION_ENDED}, ("1", "2"), "2\n"
    ),
    "flooded link": Attack(
        ("import os\nwhile True: os.write(8, b'x' * 65536)",),
        {EXITED},
        ("import os\nos.write(1, b'x' * 99 + b'\\n')",),
        "x" * 99 + "\n100\n",
    ),
    "read from the link": Attack(
        ("import os\nos.read(8, 99)",),
        {CallEnd.WALL_LIMIT},
        ("import threading\nt = threading.Thread(target=print, args=('read',)); t.start(); t.join()",),
        "read\n",
    ),
    "closed descriptors": Attack(
        ("import os\nos.closerange(0, 256)\nwhile True: pass",),
        {EXITED},
        ("import os\nos.close(0)\nopen('f', 'w').close()", "print(len(os.listdir('.')) > 0)"),
        "True\n",
    ),
    "closed output": Attack(
        ("import os, sys\nos.close(1); os.close(2)\nprint('x')\n1 / 0", "2"),
        {DONE, ERROR},
        (
            "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as s: print(3)",
            "s.getvalue()",
        ),
        "'3\\n'\n",
    ),
    "replaced link": Attack(
        ("import os\nr, w = os.pipe()\nos.dup2(r, 8)",),
        {EXITED},
        ("import os\nr, w = os.pipe()\nos.close(w)", "4"),
        "4\n",
    ),
    "hard exit": Attack(
        ("import os\nprint('said')\nos._exit(0)",),
        {EXITED},
        ("try:\n    exit()\nexcept SystemExit:\n    print('caught')",),
        "caught\n",
    ),
    "exit from a thread": Attack(
        ("import os, threading\nthreading.Thread(target=os._exit, args=(0,)).start()\nwhile True: pass",),
        {EXITED},
        ("import threading\nt = threading.Thread(target=exit); t.start(); t.join()\n'alive'",),
        "'alive'\n",
    ),
    "killed by itself": Attack(
        ("import os\nos.kill(os.getpid(), 9)",),
        {EXITED},
        ("import os, signal\nsignal.signal(10, lambda *_: print('got'))\nos.kill(os.getpid(), 10)\n5",),
        "got\n5\n",
    ),
    "stopped by itself": Attack(
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",),
        {CallEnd.WALL_LIMIT},
        ("import time\ntime.sleep(0.05)\n6",),
        "6\n",
    ),
    "endless output": Attack(
        ("import os\nwhile True: os.write(2, b'x' * 65536)",),
        {CallEnd.OUTPUT_LIMIT},
        ("print('y' * 900)",),
        "y" * 900 + "\n",
    ),
    "endless output of a thread": Attack(
        (
            "import os, threading\ndef flood():\n    while True: os.write(1, b'x' * 65536)\n"
            "threading.Thread(target=flood, daemon=True).start()",
            "import time; time.sleep(600)",
        ),
        {CallEnd.OUTPUT_LIMIT, CallEnd.SESSION_ENDED},
        ("import threading\nt = threading.Thread(target=print, args=('z',)); t.start(); t.join()",),
        "z\n",
    ),
    "endless error": Attack(
        ("class E(Exception):\n    def __str__(self): return 'x' * (4 << 20)\nraise E",),
        {CallEnd.OUTPUT_LIMIT},
        ("class E(Exception): pass\ntry: raise E('x')\nexcept E as error: print(error)",),
        "x\n",
    ),
    "signals blocked": Attack(
        ("import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass",),
        {CallEnd.CPU_LIMIT},
        ("import signal\nsignal.pthread_sigmask(0, [10])\nsum(range(99_999))",),
        "4999850001\n",
    ),
    "memory bomb": Attack(
        ("x = []\nwhile True: x.append(bytearray(1 << 20))",),
        {CallEnd.MEMORY_LIMIT},
        ("x = bytearray(b'x') * (50 << 20)", "len(x)"),
        f"{50 << 20}\n",
    ),
    "memory in small steps": Attack(
        ("x = []", *["x.append(bytearray(b'x') * (60 << 20))"] * 4),
        {CallEnd.MEMORY_LIMIT},
        ("x = 0", *["x += len(bytearray(b'x') * (60 << 20))"] * 4, "x >> 20"),
        "240\n",
    ),
    "thread bomb": Attack(
        (
            "import threading, time\nthreading.stack_size(32768)\n"
            "while True: threading.Thread(target=time.sleep, args=(600,)).start()",
        ),
        {CallEnd.PROCESS_LIMIT, CallEnd.WALL_LIMIT, ERROR},
        (
            "import threading\nts = [threading.Thread(target=int) for _ in range(9)]\n"
            "for t in ts: t.start()\nfor t in ts: t.join()\n7",
        ),
        "7\n",
    ),
    "fork bomb": Attack(
        ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",),
        {CallEnd.PROCESS_LIMIT, CallEnd.CPU_LIMIT},
        ("import os\nfor _ in range(9):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\n8",),
        "8\n",
        processes=True,
    ),
    "child that runs on in the next call": Attack(
        (
            "import os, time\nif os.fork() == 0:\n    while True: os.write(1, b'child\\n'); time.sleep(0.05)",
            "print('mine')",
        ),
        {DONE},
        ("import os, sys\nif os.fork() == 0:\n    print('child'); sys.exit()\nos.wait()[1]",),
        "child\n0\n",
        processes=True,
    ),
    "child that answers": Attack(
        (
            "import os, time\nif os.fork() == 0: time.sleep(0.1)\n'one'",
            "9",
        ),
        {DONE},
        ("import os\nif os.fork() == 0:\n    os._exit(3)\nos.waitstatus_to_exitcode(os.wait()[1])",),
        "3\n",
        processes=True,
    ),
    "children that continue each other": Attack(
        (
            "import os, signal\nfor _ in range(3):\n    if os.fork() == 0:\n"
            "        while True: os.kill(-1, signal.SIGCONT)",
            *["1"] * 9,
            "while True: pass",
        ),
        {CallEnd.CPU_LIMIT, CallEnd.PROCESS_LIMIT, CallEnd.SESSION_ENDED},
        ("import os, signal\nsignal.signal(18, lambda *_: print('on'))\nos.kill(os.getpid(), 18)\n1",),
        "on\n1\n",
        processes=True,
    ),
    "children that fork for ever": Attack(
        (
            "import os\nif os.fork() == 0:\n    while True:\n        if os.fork(): os._exit(0)",
            *["1"] * 9,
            "while True: pass",
        ),
        {CallEnd.CPU_LIMIT, CallEnd.PROCESS_LIMIT, CallEnd.SESSION_ENDED},
        ("import subprocess\nsubprocess.run(['echo', 'hi'], capture_output=True).stdout",),
        "b'hi\\n'\n",
        processes=True,
    ),
    "another program": Attack(
        ("import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'while True: pass'])",),
        {EXITED},
        ("import subprocess, sys\nsubprocess.check_output([sys.executable, '-c', 'print(2)'])",),
        "b'2\\n'\n",
        processes=True,
    ),
    "files of the machine": Attack(
        (OF_MACHINE,),
        {DONE},
        ("import os\nopen('f', 'w').write('x')\nos.path.exists(os.environ['HOME'])",),
        "True\n",
    ),
    "thread between calls": Attack(
        (
            "import threading\nn = 0\ndef spin():\n    global n\n    while True: n += 1\n"
            "threading.Thread(target=spin, daemon=True).start()",
            "while True: pass",
        ),
        {CallEnd.CPU_LIMIT},
        (
            "import threading\ngo, done = threading.Event(), threading.Event()\n"
            "threading.Thread(target=lambda: go.wait() and done.set()).start()",
            "go.set(); done.wait()",
        ),
        "True\n",
    ),
    "emptied modules": Attack(
        (
            "import ast, builtins, linecache, os, sys, traceback\nput = setattr\n"
            "for module in (ast, linecache, os, traceback, sys, builtins):\n"
            "    for name in list(vars(module)):\n"
            "        try: put(module, name, None)\n        except BaseException: pass",
            "1",
        ),
        {DONE, ERROR, EXITED, CallEnd.SESSION_ENDED},
        (
            "import builtins\nold = builtins.print\nbuiltins.print = lambda *a: old('new', *a)\nprint(1)",
            "builtins.print = old\nprint(2)",
        ),
        "2\n",
    ),
    "changed harness": Attack(
        ("import sys\nsys._getframe(1).f_locals['self']._link = 250", "1"),
        {EXITED, CallEnd.SESSION_ENDED},
        ("import sys\nsys._getframe().f_code.co_filename",),
        "'<call 1>'\n",
    ),
    "full disk": Attack(
        ("for i in range(200): open(f'f{i}', 'wb').write(bytes(1 << 20))",),
        {ERROR, CallEnd.OUTPUT_LIMIT},
        ("open('f', 'wb').write(bytes(1 << 20))", "import os; os.path.getsize('f')"),
        "1048576\n",
    ),
}


@pytest.fixture(scope="module")
def sessions(tier: Tier) -> Iterator[PythonSessions]:
    sessions = started(tier, replace(SMALL, cpu_s=1.0, wall_s=3.0))
    yield sessions
    sessions.close_now()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_at_most_its_own_session_and_its_twin_works(
    sessions: PythonSessions, tier: Tier, name: str
) -> None:
    attack = ATTACKS[name]
    if attack.processes and tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    results = played(sessions, *attack.calls, "'after'")
    assert results[len(attack.calls) - 1].ended in attack.ends, results
    assert all(len(result.text) < 2500 for result in results)
    alive = results[-2].alive
    assert results[-1].ended is CallEnd.SESSION_ENDED or alive, results
    twin = played(sessions, *attack.twin)
    assert (twin[-1].text, twin[-1].ended) == (attack.text, DONE)
    assert twin[-1].alive


def test_nothing_of_the_machine_or_of_the_judge_can_be_read(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPECTED", "a secret")
    sessions = started(tier)
    try:
        [result] = played(sessions, OF_MACHINE)
    finally:
        sessions.close_now()
    assert result.text == "([], ['HOME', 'LANG', 'PATH', 'TMPDIR'])\n"


def test_output_of_a_child_is_output_of_its_session(sessions: PythonSessions, tier: Tier) -> None:
    if tier is Tier.RESTRICTED:
        pytest.skip("a program has one process there")
    calls = ATTACKS["child that runs on in the next call"].calls
    results = played(sessions, *calls)
    lines = {line for result in results for line in result.text.splitlines()}
    assert "mine" in lines <= {"mine", "child"}


def test_a_forged_answer_shows_only_text_of_its_own_program(sessions: PythonSessions) -> None:
    results = played(sessions, "print('own')\n" + FORGE.format(1, 2) + "time.sleep(600)", "'next'")
    assert (results[0].text, results[0].ended, results[0].alive) == ("own\n", ERROR, True)
    assert (results[1].ended, results[1].alive) == (CallEnd.WALL_LIMIT, False)

"""A session keeps its state from call to call, shows what a call writes, and ends at each limit."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.processes import descendants, wait_until
from tests.sandbox.sessions import SMALL, played, processes_of, server_of, started
from whetstone.sandbox import (
    CallEnd,
    PythonSessions,
    SandboxFault,
    SessionLimits,
    SessionResult,
    Tier,
)

pytestmark = pytest.mark.isolation

Play = Callable[..., list[SessionResult]]

SPINNING_THREAD = """
import threading
threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()
"""


@pytest.fixture(scope="module")
def sessions(tier: Tier) -> Iterator[PythonSessions]:
    sessions = started(tier)
    yield sessions
    sessions.close_now()


@pytest.fixture
def play(sessions: PythonSessions) -> Play:
    return lambda *codes: played(sessions, *codes)


def texts(results: list[SessionResult]) -> list[str]:
    assert all(result.ended is CallEnd.DONE and result.alive for result in results), results
    return [result.text for result in results]


def test_state_lasts_from_call_to_call(play: Play) -> None:
    assert texts(
        play(
            "import math\nx = 6\ndef area(r):\n    return math.pi * r * r * x",
            "class Counter:\n    n = 0\n    def up(self): self.n += 1; return self.n\nc = Counter()",
            "g = (i * i for i in range(9)); next(g), next(g)",
            "c.up(); c.up()",
            "next(g), round(area(1), 3), __name__, type(c).__module__",
            "open('note', 'w').write('kept'); del x",
            "open('note').read(), 'x' in globals()",
        )
    ) == ["", "", "(0, 1)\n", "2\n", "(4, 18.85, '__main__', '__main__')\n", "", "('kept', False)\n"]


def test_output_is_shown_in_order_and_the_value_of_a_last_expression_last(play: Play) -> None:
    code = (
        "import os, sys\nprint('a')\nprint('b', file=sys.stderr)\n"
        "os.write(1, b'c\\n')\nprint('d', end='')\n{'e': 1}"
    )
    assert texts(play(code, "1; None", "x = 3", "'only'", "", "_")) == [
        "a\nb\nc\nd{'e': 1}\n",
        "",
        "",
        "'only'\n",
        "",
        "'only'\n",
    ]


def test_an_exception_shows_its_traceback_and_keeps_the_state(play: Play) -> None:
    _, failed, broken, later = play(
        "def f(n):\n    return 1 // n",
        "y = 5\nprint('before')\nf(0)\nprint('never')",
        "z = (1,\n",
        "y",
    )
    lines = [line for line in failed.text.splitlines() if line.strip(" ~^")]
    assert lines[:-1] == [
        "before",
        "Traceback (most recent call last):",
        '  File "<call 2>", line 3, in <module>',
        "    f(0)",
        '  File "<call 1>", line 2, in f',
        "    return 1 // n",
    ]
    assert lines[-1].startswith("ZeroDivisionError: ")
    assert (failed.ended, failed.alive) == (CallEnd.ERROR, True)
    assert (broken.ended, broken.text.splitlines()[-1]) == (
        CallEnd.ERROR,
        "SyntaxError: '(' was never closed",
    )
    assert "run_session" not in broken.text
    assert (later.text, later.ended) == ("5\n", CallEnd.DONE)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("input()", "EOFError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise MemoryError", "MemoryError"),
        ("def f(): f()\nf()", "RecursionError"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("x = '\\ud800'; print(x)", "UnicodeEncodeError"),
        ("x = 'a\x00b'", "null bytes"),
        ("x = '\ud800'", "SyntaxError"),
        ("(" * 300 + ")" * 300, "SyntaxError"),
        ("class E(Exception):\n    def __str__(self): raise E\nraise E", "E: <exception str() failed>"),
    ],
)
def test_errors_of_every_kind_leave_the_session_alive(play: Play, code: str, error: str) -> None:
    failed, later = play(code, "7")
    assert failed.ended is CallEnd.ERROR
    assert error in failed.text
    assert (later.text, later.ended) == ("7\n", CallEnd.DONE)


def test_a_long_source_is_refused_and_a_shorter_one_runs(play: Play) -> None:
    refused, ran, later = play(f"x = '{'y' * (128 << 10)}'", f"x = '{'y' * (127 << 10)}'", "len(x)")
    assert (refused.ended, refused.alive) == (CallEnd.ERROR, True)
    assert "did not run" in refused.text
    assert (ran.ended, later.text) == (CallEnd.DONE, f"{127 << 10}\n")


def test_long_output_is_cut_in_the_middle(play: Play) -> None:
    whole, cut, value = play("print('x' * 1999)", "print('a' * 3000 + 'z' * 3000)", "list(range(100_000))")
    assert whole.text == "x" * 1999 + "\n"
    assert cut.text == "a" * 1000 + "\n[... 4001 bytes of output omitted ...]\n" + "z" * 999 + "\n"
    assert value.text.startswith("[0, 1, 2")
    assert value.text.endswith("99999]\n")
    assert len(value.text) < 2100


@pytest.mark.parametrize(
    ("limits", "code", "ended", "reason"),
    [
        ({"cpu_s": 0.3}, "print('begun')\nwhile True: pass", CallEnd.CPU_LIMIT, "0.3 s of CPU time"),
        (
            {"total_cpu_s": 0.3},
            "print('begun')\nwhile True: pass",
            CallEnd.CPU_LIMIT,
            "0.3 s of CPU time together",
        ),
        (
            {"wall_s": 0.5},
            "print('begun')\nimport time; time.sleep(600)",
            CallEnd.WALL_LIMIT,
            "longer than 0.5 s",
        ),
        ({}, "print('begun')\nx = bytearray(b'x') * (400 << 20)", CallEnd.MEMORY_LIMIT, "200 MiB"),
        ({}, "print('begun')\nwhile True: print('x' * 1000)", CallEnd.OUTPUT_LIMIT, "too much output"),
        ({}, "print('begun')\nraise SystemExit(3)", CallEnd.EXITED, "exited with code 3"),
        ({}, "print('begun')\nimport ctypes; ctypes.string_at(0)", CallEnd.EXITED, "signal 11"),
    ],
    ids=["cpu", "total-cpu", "wall", "memory", "output", "exit", "crash"],
)
def test_a_limit_ends_the_session_with_its_reason(
    tier: Tier, limits: dict[str, float], code: str, ended: CallEnd, reason: str
) -> None:
    sessions = started(tier, replace(SMALL, **limits))
    try:
        result, later = played(sessions, code, "1")
        assert (result.ended, result.alive) == (ended, False)
        assert result.text.startswith("begun\n")
        assert reason in result.text.splitlines()[-1]
        assert (later.ended, later.alive) == (CallEnd.SESSION_ENDED, False)
        assert reason in later.text
        assert "did not run" in later.text
        assert [r.text for r in played(sessions, "'well'")] == ["'well'\n"]
    finally:
        sessions.close_now()


def test_cpu_time_of_earlier_calls_counts_only_for_the_session(tier: Tier) -> None:
    burn = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    sessions = started(tier, replace(SMALL, cpu_s=1.5, total_cpu_s=2.5))
    try:
        results = played(sessions, *[burn] * 8)
    finally:
        sessions.close_now()
    ends = [result.ended for result in results]
    ran = ends.count(CallEnd.DONE)
    assert 3 <= ran <= 6
    assert ends == [CallEnd.DONE] * ran + [CallEnd.CPU_LIMIT] + [CallEnd.SESSION_ENDED] * (7 - ran)
    assert all(result.cpu_s >= 0.4 for result in results[:ran])


def test_time_between_calls_does_not_count(tier: Tier) -> None:
    async def main() -> SessionResult:
        limits = replace(SMALL, wall_s=2.0)
        async with PythonSessions(tier=tier, limits=limits) as sessions, await sessions.open() as session:
            await session.run("x = 1")
            await asyncio.sleep(2.5)
            return await session.run("x")

    assert asyncio.run(main()).text == "1\n"


def test_a_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="cpu_s"):
        SessionLimits(cpu_s=0)


def test_sessions_at_the_same_time_are_isolated(sessions: PythonSessions) -> None:
    async def main() -> list[list[SessionResult]]:
        opened = await asyncio.gather(*(sessions.open() for _ in range(16)))
        try:
            begun = await asyncio.gather(
                *(
                    session.run(f"import os\nmine = {i}\nopen('f{i}', 'w').write('{i}')\nos.getpid()")
                    for i, session in enumerate(opened)
                )
            )
            pids = {int(result.text) for result in begun} | {session._run.pid for session in opened}
            attack = (
                "import signal\nfor pid in pids - {os.getpid(), 1}:\n    try: os.kill(pid, signal.SIGKILL)\n"
                "    except OSError: pass\n"
                "mine, sorted(set(os.listdir('.')) - {'main.py'})"
            )
            attacked = await asyncio.gather(*(session.run(f"pids = {pids}\n{attack}") for session in opened))
            later = await asyncio.gather(*(session.run("mine") for session in opened))
        finally:
            await asyncio.gather(*(session.close() for session in opened))
        return [attacked, later]

    attacked, later = asyncio.run(main())
    assert texts(attacked) == [f"({i}, ['f{i}'])\n" for i in range(16)]
    assert texts(later) == [f"{i}\n" for i in range(16)]


def test_a_session_finds_nothing_of_the_previous_one(play: Play) -> None:
    play("import builtins, math\nopen('left', 'w').write('x')\nbuiltins.left = math.left = 1\nleft")
    [result] = play(
        "import builtins, math, os\n"
        "'left' in os.listdir('.'), hasattr(builtins, 'left'), hasattr(math, 'left')"
    )
    assert result.text == "(False, False, False)\n"


def test_the_event_loop_runs_during_calls_and_more_sessions_than_workers_are_served(tier: Tier) -> None:
    async def main() -> list[str]:
        async with PythonSessions(tier=tier, limits=SMALL, workers=1) as sessions:
            first, second = await sessions.open(), await sessions.open()
            busy = asyncio.create_task(first.run("import time; time.sleep(0.5); 'first'"))
            await asyncio.sleep(0)
            waiting = asyncio.create_task(second.run("'second'"))
            beats = 0
            while not busy.done():
                await asyncio.sleep(0.01)
                beats += 1
            with pytest.raises(RuntimeError, match="await its result first"):
                await asyncio.gather(first.run("1"), first.run("2"))
            return [(await busy).text, (await waiting).text, str(beats > 2)]

    assert asyncio.run(main()) == ["'first'\n", "'second'\n", "True"]


def test_a_cancelled_call_leaves_no_process(sessions: PythonSessions, tier: Tier) -> None:
    child = "" if tier is Tier.RESTRICTED else "os.fork() or time.sleep(600)\n"

    async def main() -> None:
        session = await sessions.open()
        call = asyncio.create_task(session.run(f"import os, time\n{child}while True: pass"))
        several = 1 if tier is Tier.RESTRICTED else 2
        await asyncio.to_thread(wait_until, lambda: len(processes_of(session)) >= several)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert processes_of(session) == set()
        assert (await session.run("1")).text == "the session has ended: it was closed; this code did not run"
        other = await sessions.open()
        assert (await other.run("2")).text == "2\n"
        await other.close()

    asyncio.run(main())


def test_closing_ends_calls_that_run_or_wait(tier: Tier) -> None:
    async def main() -> tuple[list[SessionResult], set[int]]:
        sessions = PythonSessions(tier=tier, limits=SMALL, workers=1)
        async with sessions:
            opened = [await sessions.open() for _ in range(3)]
            calls = [asyncio.create_task(session.run("while True: pass")) for session in opened]
            await asyncio.to_thread(wait_until, lambda: all(map(processes_of, opened)))
            await opened[0].close()
            servers = {server_of(session) for session in opened}
        with pytest.raises(RuntimeError, match="closed"):
            await sessions.open()
        return await asyncio.gather(*calls), servers

    results, servers = asyncio.run(main())
    assert {result.ended for result in results} == {CallEnd.SESSION_ENDED}
    assert servers & descendants(os.getpid()) == set()


@pytest.mark.parametrize("stage", ["opening", "calling"])
def test_an_event_loop_that_ends_early_leaves_no_process(tier: Tier, stage: str) -> None:
    before = descendants(os.getpid())
    loop = asyncio.new_event_loop()
    opened = asyncio.Event()

    async def main() -> None:
        async with PythonSessions(tier=tier, limits=SMALL) as sessions, await sessions.open() as session:
            opened.set()
            await session.run("import time; time.sleep(600)")

    call = loop.create_task(main())
    if stage == "calling":
        loop.run_until_complete(opened.wait())
    loop.run_until_complete(asyncio.to_thread(wait_until, lambda: descendants(os.getpid()) > before))
    coroutine = call.get_coro()
    loop.close()
    assert coroutine is not None
    coroutine.close()
    del call, coroutine
    gc.collect()
    wait_until(lambda: descendants(os.getpid()) <= before)


@pytest.mark.parametrize("end", ["sys.exit()", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_process_that_ends_with_open_sessions_leaves_no_process(tier: Tier, end: str) -> None:
    script = (
        "import asyncio, os, sys\nfrom whetstone.sandbox import PythonSessions, Tier\n"
        f"sessions = PythonSessions(tier=Tier.{tier.name})\n"
        "async def main():\n"
        "    await sessions.__aenter__()\n"
        "    session = await sessions.open()\n"
        f"    await session.run({SPINNING_THREAD!r})\n"
        "    print(session._sandbox._server._process.pid, session._run.pid, flush=True)\n"
        f"asyncio.run(main())\n{end}\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2, ended.stderr
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_a_dead_fork_server_is_a_fault_of_the_sandbox(sessions: PythonSessions) -> None:
    async def main() -> None:
        session = await sessions.open()
        await session.run("1")
        os.kill(server_of(session), signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: not os.path.exists(f"/proc/{session._run.pid}"))
        with pytest.raises(SandboxFault):
            await session.run("1")
        assert not session.alive
        assert "the sandbox failed" in (await session.run("1")).text
        await session.close()
        async with await sessions.open() as other:
            assert (await other.run("2")).text == "2\n"
            call = asyncio.create_task(other.run("import time; time.sleep(600)"))
            await asyncio.sleep(0.1)
            os.kill(server_of(other), signal.SIGKILL)
            with pytest.raises(SandboxFault):
                await call

    asyncio.run(main())


def test_too_many_open_files_are_a_fault_of_the_sandbox(tier: Tier) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        async with PythonSessions(tier=tier, limits=SMALL) as sessions, await sessions.open() as first:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                with pytest.raises(SandboxFault, match="open files"):
                    await sessions.open()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert (await first.run("3")).text == "3\n"
            async with await sessions.open() as other:
                assert (await other.run("4")).text == "4\n"

    asyncio.run(main())

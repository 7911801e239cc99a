"""Fork-servers and workers killed at any moment lose nothing; who kills them every time meets a verdict."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from typing import Any

import pytest

from tests.judge.judge_problems import assert_problem, call_problem, python, stdin_problem
from tests.judge.judge_processes import (
    ENOUGH_S,
    GROW,
    below,
    fork_servers,
    runs_something_big,
    server_generations,
)
from whetstone.judge import Judge, Judgement, Program, Verdict

pytestmark = pytest.mark.process

ECHO = stdin_problem(("1\n", "1\n"))


def mixed_work(count: int) -> list[tuple[dict[str, Any], Program]]:
    """Problems of three kinds with right, wrong, crashing and endless programs, two or three cases each."""
    doubles = stdin_problem(("2\n", "4\n"), ("5\n", "10\n"), ("7\n", "14\n"))
    adds = call_problem("add", ([1, 2], 3), ([2, 2], 4))
    asserts = assert_problem(asserts=["assert add(1, 2) == 3", "assert add(2, 2) == 4"])
    quick = {"cpu_s": 0.1, "memory_mb": 256.0, "output_mb": 1.0}
    kinds: list[tuple[dict[str, Any], Program]] = [
        (doubles, python("print(2 * int(input()))")),
        (doubles, python("n = int(input())\nprint(2 * n if n != 5 else 'x')")),
        (doubles, python("n = int(input())\nprint(2 * n)\nif n == 7: 1 / 0")),
        (adds, python("def add(a, b): return a + b")),
        (adds, python("def add(a, b): return a * b")),
        (asserts, python("def add(a, b): return a + b")),
        (asserts, python("def add(a, b): return a * b")),
        (asserts, python("def add(a, b): raise KeyError(a)")),
        (doubles, python("def (")),
    ]
    endless = ({**doubles, "limits": quick}, python("n = int(input())\nwhile n == 5: pass\nprint(2 * n)"))
    return [endless if i % 20 == 8 else kinds[i % len(kinds)] for i in range(count)]


def said(judgement: Judgement) -> tuple[Any, ...]:
    """What does not depend on the clock."""
    return judgement.verdict, judgement.score, [(case.index, case.verdict) for case in judgement.cases]


def test_killing_workers_and_fork_servers_changes_no_judgement() -> None:
    work = mixed_work(100)
    draw = random.Random(5)
    with Judge(workers=2) as judge:
        undisturbed = [said(judgement) for judgement in judge.judge_many(work)]
        generations = server_generations(judge.worker_pids()[0])
        futures = [judge.submit(problem, program) for problem, program in work]
        kills: list[str] = []
        for done, future in enumerate(futures):
            future.result(ENOUGH_S)
            if done % 12 == 5:
                kills.append(kill_one(judge, draw, generations if len(kills) % 3 < 2 else 0))
        assert kills.count("fork-server") >= 5
        assert kills.count("worker") >= 2
        assert [said(future.result()) for future in futures] == undisturbed


def kill_one(judge: Judge, draw: random.Random, generations: int) -> str:
    """Kill a process of one of the fork-servers, any of the ``generations`` of them; a worker if 0."""
    victims = judge.worker_pids()
    if generations:
        victims = [process for pid in victims for process in below(pid, generations)]
    for victim in draw.sample(victims, len(victims)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
            return "fork-server" if generations else "worker"
    return "nobody"


@contextlib.contextmanager
def killing(judge: Judge, victims: Callable[[int], list[int]]) -> Generator[None]:
    """Meanwhile, ``victims`` of each worker below which a program makes itself known are killed."""
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.01):
            for worker in judge.worker_pids():
                if runs_something_big(worker):
                    for pid in victims(worker):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def judged_among_others(judge: Judge, problem: dict[str, Any], program: Program) -> Judgement:
    """The judgement on a program, with others before and behind it that must not notice."""
    work = mixed_work(20)
    undisturbed = [said(judgement) for judgement in judge.judge_many(work)]
    futures: list[Future[Judgement]] = [judge.submit(*pair) for pair in work[:10]]
    killer = judge.submit(problem, program)
    futures += [judge.submit(*pair) for pair in work[10:]]
    wait([*futures, killer], ENOUGH_S)
    assert [said(future.result(0)) for future in futures] == undisturbed
    return killer.result(0)


def test_a_program_that_brings_down_every_fork_server_meets_a_verdict() -> None:
    program = python(GROW + "import time\ntime.sleep(4)\nprint(input())")
    with Judge(workers=2) as judge, killing(judge, fork_servers):
        judgement = judged_among_others(judge, ECHO, program)
    assert judgement.verdict is Verdict.RUNTIME_ERROR
    assert "ended the sandbox 3 times" in judgement.reason


def test_a_program_that_brings_down_every_worker_meets_a_verdict() -> None:
    program = python(GROW + "import time\ntime.sleep(4)\nprint(input())")
    with Judge(workers=2) as judge, killing(judge, lambda worker: [worker]):
        judgement = judged_among_others(judge, ECHO, program)
    assert judgement.verdict is Verdict.RUNTIME_ERROR
    assert "ended the judge's worker 3 times" in judgement.reason


@pytest.mark.extended
def test_refused_cases_outlast_their_worker() -> None:
    """The first case would be right if it were judged again; the worker dies in the second."""
    problem = stdin_problem(("1\n", "1\n"), ("2\n", "2\n"))
    for patience_s in (2.0, 8.0, 32.0, 90.0):
        with Judge(workers=1) as judge:
            [worker] = judge.worker_pids()
            late = time.time() + patience_s
            source = (
                f"import time\nn = int(input())\nif n == 1: print(1 if time.time() > {late} else 0)\nelse:\n"
                f"    {GROW}    while time.time() < {late + 1}: time.sleep(0.01)\n    print(2)"
            )
            future = judge.submit(problem, python(source))
            second = False
            while time.time() < late and not second:
                time.sleep(0.01)
                second = runs_something_big(worker)
            if not second:
                continue  # the machine is slow: the first case may have been late as well
            time.sleep(max(late - time.time(), 0.0))
            os.kill(worker, signal.SIGKILL)
            judged = future.result(ENOUGH_S)
            assert [case.verdict for case in judged.cases] == [Verdict.WRONG_ANSWER, Verdict.ACCEPTED]
            return
    raise AssertionError("nothing was judged in time")


def test_fork_servers_that_die_of_everything_give_no_verdict() -> None:
    """The harmless program dies as well, so there is no evidence against the other."""
    with Judge(workers=1) as judge:
        stop = threading.Event()

        def kill() -> None:
            with contextlib.suppress(PermissionError):  # not to be kept waiting for a core
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            while not stop.wait(0.005):
                for server in (server for pid in judge.worker_pids() for server in fork_servers(pid)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(server, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        judgement = judge.judge(ECHO, python("import time\ntime.sleep(9)\nprint(input())"))
        stop.set()
        thread.join()
        assert judgement.verdict is Verdict.JUDGE_ERROR
        assert judge.judge(ECHO, python("print(1)")).accepted

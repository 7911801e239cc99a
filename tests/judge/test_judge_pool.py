"""Workers as processes: load, death, cancellation and closing change no verdict and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import assert_problem, call_problem, python, stdin_problem
from tests.processes import ENOUGH_S, descendants, wait_until
from whetstone.core.errors import UserError
from whetstone.judge import AsyncJudge, Judge, Judgement, Program, Verdict

TEXTS: dict[str, str] = data_beside(__file__)["texts"]

pytestmark = pytest.mark.process

ECHO = stdin_problem(("1\n", "1\n"))


def worker_pids(parent: int) -> list[int]:
    """The judge workers below ``parent``."""
    return [pid for pid in descendants(parent) if is_worker(pid)]


def is_worker(pid: int) -> bool:
    try:
        return b"whetstone.judge.workers.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False  # it ended while we looked


def test_judgements_come_in_input_order_whatever_ends_first(judge: Judge) -> None:
    slow = python("x = 0\nfor i in range(10**6): x += i\nprint(input())")
    fast = python("print(input())")
    problems = [stdin_problem((str(i), str(i) if i % 3 else "no")) for i in range(20)]
    judged = judge.judge_many((p, slow if i % 4 == 0 else fast) for i, p in enumerate(problems))
    assert [j.accepted for j in judged] == [bool(i % 3) for i in range(20)]


def test_judging_many_reads_its_input_only_a_little_ahead(judge: Judge) -> None:
    read: list[int] = []

    def pairs() -> Iterator[tuple[dict[str, Any], Program]]:
        for i in range(1000):
            read.append(i)
            yield ECHO, python("print(1)")

    judgements = judge.judge_many(pairs())
    assert next(judgements).accepted
    assert len(read) < 20


def test_a_busy_machine_changes_no_verdict(judge: Judge) -> None:
    """CPU time decides: a program well within its limit passes while every core is busy."""
    spin = [sys.executable, "-S", "-c", "import time\nend = time.time() + 60\nwhile time.time() < end: pass"]
    burners = [subprocess.Popen(spin) for _ in range(3 * len(os.sched_getaffinity(0)))]
    try:
        problem = stdin_problem(*[("", "done")] * 3)
        honest = python("import time\nwhile time.process_time() < 0.15: pass\nprint('done')")
        looping = python("while True: pass")
        assert judge.judge(problem, honest).accepted
        assert judge.judge(ECHO, looping).verdict is Verdict.TIME_LIMIT
        assert judge.judge(call_problem("f", ([1], 1)), python("def f(x): return x")).accepted
        assert judge.judge(
            assert_problem(asserts=["assert f(1) == 1"]), python("def f(x): return x")
        ).accepted
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_a_worker_killed_in_the_middle_costs_no_judgement() -> None:
    others = worker_pids(os.getpid())
    with Judge(workers=1) as judge:
        [worker] = set(worker_pids(os.getpid())) - set(others)
        long = stdin_problem(*[("", "499999500000")] * 15)
        done: list[Judgement] = []
        work = python("print(sum(range(10**6)))")
        thread = threading.Thread(target=lambda: done.append(judge.judge(long, work)))
        thread.start()
        time.sleep(0.2)
        os.kill(worker, signal.SIGKILL)
        thread.join(ENOUGH_S)
        assert [j.accepted for j in done] == [True]
        assert judge.judge(ECHO, python("print(1)")).accepted
        assert worker not in worker_pids(os.getpid())


def test_when_worker_after_worker_dies_it_is_no_verdict_and_the_next_program_is_judged() -> None:
    others = set(worker_pids(os.getpid()))
    with Judge(workers=1) as judge:
        stop = threading.Event()

        def killer() -> None:
            while not stop.is_set():
                for pid in set(worker_pids(os.getpid())) - others:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)

        thread = threading.Thread(target=killer)
        thread.start()
        judgement = judge.judge(stdin_problem(*[("", "x")] * 500), python("print('x')"))
        stop.set()
        thread.join()
        assert judgement.verdict is Verdict.JUDGE_ERROR
        assert judgement.score is None
        assert judge.judge(ECHO, python("print(1)")).accepted


def test_a_worker_that_does_not_start_in_time_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Less than an interpreter takes to start, whatever the machine does.
    monkeypatch.setattr("whetstone.judge.workers.process.START_TIMEOUT_S", 0.001)
    with pytest.raises(UserError, match=r"did not start \(no answer before the deadline\).*free a core"):
        Judge(workers=1)


def test_closing_ends_only_our_workers_and_cancels_pending_judgements(judge: Judge) -> None:
    others = set(worker_pids(os.getpid()))
    mine = Judge(workers=2)
    wait_until(lambda: len(set(worker_pids(os.getpid())) - others) == 2)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            mine.judge(ECHO, python("import time\ntime.sleep(60)"))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    mine.close()
    thread.join(ENOUGH_S)
    assert [type(error) for error in raised] == [CancelledError]
    assert set(worker_pids(os.getpid())) == others
    assert judge.judge(ECHO, python("print(1)")).accepted
    with pytest.raises(RuntimeError, match="closed"):
        mine.judge(ECHO, python("print(1)"))
    mine.close()


def test_workers_leave_when_their_parent_is_killed() -> None:
    script = TEXTS["script"]
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"ready\n"
        workers = worker_pids(parent.pid)
        parent.kill()
        parent.wait()
    assert workers
    wait_until(lambda: not any(map(is_worker, workers)))


def test_many_judgements_are_awaited_at_once() -> None:
    async def main() -> None:
        async with AsyncJudge(workers=2) as judge:
            problems = [stdin_problem(("", str(i % 7))) for i in range(40)]
            judged = await asyncio.gather(*(judge.judge(p, python("print(3)")) for p in problems))
            assert [j.accepted for j in judged] == [i % 7 == 3 for i in range(40)]
            listed = [j async for j in judge.judge_many((p, python("print(3)")) for p in problems)]
            assert [j.accepted for j in listed] == [j.accepted for j in judged]

    asyncio.run(main())


def test_a_cancelled_await_frees_its_place() -> None:
    async def main() -> None:
        async with AsyncJudge(workers=1) as judge:
            long = stdin_problem(*[("", "499999500000")] * 20)
            work = python("print(sum(range(10**6)))")
            running = asyncio.create_task(judge.judge(long, work))
            queued = [asyncio.create_task(judge.judge(long, work)) for _ in range(20)]
            await asyncio.sleep(0.1)
            for task in (running, *queued):
                task.cancel()
            results = await asyncio.gather(running, *queued, return_exceptions=True)
            assert all(isinstance(r, asyncio.CancelledError) for r in results)
            assert (await judge.judge(ECHO, python("print(1)"))).accepted

    asyncio.run(main())


def test_the_judge_imports_neither_torch_nor_numpy() -> None:
    modules = "sys, whetstone.judge, whetstone.judge.workers.main"
    code = f"import {modules}\nprint({{'torch', 'numpy'}} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


MODULE = TEXTS["module"]


def test_a_judge_made_before_a_fork_judges_after_it(tmp_path: Path) -> None:
    """As a reward function's module does that a pool of processes is forked from."""
    file = tmp_path / "rewards.py"
    file.write_text(MODULE)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=5 * ENOUGH_S)
    said = done.stdout.split()
    assert said[:1] == ["well"], done.stderr
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in said[1:]))


def test_a_forked_process_that_closes_an_inherited_judge_harms_nobody() -> None:
    with Judge(workers=1) as judge:
        assert judge.judge(ECHO, python("print(1)")).accepted
        before = judge.worker_pids()
        child = os.fork()
        if child == 0:
            judge.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert judge.judge(ECHO, python("print(1)")).accepted
        assert judge.worker_pids() == before

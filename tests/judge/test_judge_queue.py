"""What waits and what is given up: order, deadlines, cancellation; and which cases of a problem are run."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from concurrent.futures import Future, wait
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.judge_problems import assert_problem, python, stdin_problem
from tests.judge.judge_processes import ENOUGH_S, GROW, fork_servers, wait_for_something_big
from whetstone.core.errors import UserError
from whetstone.judge import AsyncJudge, Judge, Judgement, Verdict
from whetstone.judge.judging import chosen_cases

ECHO = stdin_problem(("1\n", "1\n"))
ONE = python("print(1)")
# An hour of CPU, and so ten hours of wall time: only being stopped ends these programs in time.
LONG = {"cpu_s": 3600.0, "memory_mb": 256.0, "output_mb": 1.0}
ENDLESS = stdin_problem(("", "1"), limits=LONG)
SLEEPER = python(GROW + "import time\ntime.sleep(36000)")
SPINNER = python(GROW + "while True: pass")
ENDLESS_CALL = assert_problem(asserts=["assert f(1) == 1"]) | {"limits": LONG}
SLEEPING_CALL = python(GROW + "import time\ndef f(x): time.sleep(36000)")


@pytest.fixture(scope="module")
def one() -> Iterator[Judge]:
    """A judge with a single worker: what it does first, the others wait for."""
    with Judge(workers=1) as judge:
        assert judge.judge(
            assert_problem(asserts=["assert f(1) == 1"]), python("def f(x): return x")
        ).accepted
        yield judge


def processes(judge: Judge) -> list[int]:
    [worker] = judge.worker_pids()
    return [worker, *fork_servers(worker)]


@pytest.mark.process
def test_queued_jobs_run_by_priority_then_deadline_then_arrival(one: Judge) -> None:
    blocker = one.submit(ENDLESS, SLEEPER, priority=9)
    order: list[str] = []

    def submit(name: str, **wishes: float) -> Future[Judgement]:
        future = one.submit(ECHO, ONE, **wishes)
        future.add_done_callback(lambda _: order.append(name))
        return future

    futures = [
        submit("low", priority=-1),
        submit("first"),
        submit("second"),
        submit("due later", deadline_s=5000),
        submit("due soon", deadline_s=1000),
        submit("high", priority=2),
    ]
    blocker.cancel()
    assert all(future.result(ENOUGH_S).accepted for future in futures)
    assert order == ["high", "due soon", "due later", "first", "second", "low"]


@pytest.mark.process
@pytest.mark.parametrize("program", [SLEEPER, SPINNER, SLEEPING_CALL], ids=["sleeps", "spins", "is called"])
def test_cancelling_stops_a_running_program_and_keeps_its_worker(one: Judge, program) -> None:
    before = processes(one)
    future = one.submit(ENDLESS_CALL if program is SLEEPING_CALL else ENDLESS, program)
    wait_for_something_big(before[0])
    assert future.cancel()
    assert future in wait([future], ENOUGH_S).done
    assert one.judge(ECHO, ONE).accepted
    assert processes(one) == before


@pytest.mark.process
def test_a_cancelled_task_stops_its_program() -> None:
    async def main() -> None:
        async with AsyncJudge(workers=1) as judge:
            task = asyncio.create_task(judge.judge(ENDLESS, SLEEPER))
            waiting = asyncio.create_task(judge.judge(ENDLESS, SLEEPER))
            await asyncio.to_thread(wait_for_something_big, judge.worker_pids()[0])
            task.cancel()
            waiting.cancel()
            ended = await asyncio.gather(task, waiting, return_exceptions=True)
            assert [type(result) for result in ended] == [asyncio.CancelledError] * 2
            assert (await judge.judge(ECHO, ONE)).accepted

    asyncio.run(main())


@pytest.mark.process
def test_ending_the_iteration_stops_programs_that_were_submitted_ahead(one: Judge) -> None:
    judgements = one.judge_many([(ECHO, ONE), *[(ENDLESS, SLEEPER)] * 10])
    assert next(judgements).accepted
    assert isinstance(judgements, Generator)
    judgements.close()
    assert one.judge(ECHO, ONE).accepted


@pytest.mark.process
def test_a_passed_deadline_frees_the_worker_and_is_no_verdict_on_a_queued_program(one: Judge) -> None:
    before = processes(one)
    running = one.submit(ENDLESS, SLEEPER, deadline_s=1.0, priority=1)
    waiting = one.submit(ECHO, ONE, deadline_s=0.5)
    patient = one.submit(ECHO, ONE, deadline_s=ENOUGH_S)
    judgement = waiting.result(ENOUGH_S)
    assert (judgement.verdict, judgement.score) == (Verdict.JUDGE_ERROR, None)
    for late in (running, waiting):
        assert "deadline" in late.result(ENOUGH_S).reason
    assert patient.result(ENOUGH_S).accepted
    assert processes(one) == before


@pytest.mark.process
def test_work_that_is_done_or_given_up_holds_no_task(one: Judge) -> None:
    """A queue of any length costs what waits in it, not what has left it."""
    blocker = one.submit(ENDLESS, SLEEPER, priority=1)
    for _ in range(1000):
        one.submit(ECHO, ONE, deadline_s=5000).cancel()
    pool = one._pool
    assert pool is not None
    assert len(pool._pending) == 1
    assert all(len(heap._entries) < 200 for heap in (pool.admission._waiting, pool.admission._deadlines))
    blocker.cancel()


@pytest.mark.process
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"deadline_s": 0.0}, "deadline_s is 0.0: expected `float` > 0"),
        ({"deadline_s": float("nan")}, "deadline_s is nan"),
        ({"max_cases": 0}, "max_cases is 0: expected `int` >= 1"),
        ({"priority": "\ud800"}, ": options are numbers, True or False"),
        ({"max_cases": "3"}, "max_cases is '3': expected `int | null`, got `str`"),
        ({"hash_seed": 1 << 32}, "hash_seed is 4294967296"),
        ({"fork_per_case": 1}, "fork_per_case is 1: expected `bool`"),
    ],
)
def test_an_invalid_option_is_refused_with_the_expected_type(
    one: Judge, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as refused:
        one.submit(ECHO, ONE, **options)
    assert said in str(refused.value)
    with pytest.raises(UserError):
        Judge(workers=1, **options)


@pytest.mark.process
@pytest.mark.parametrize(("name", "meant"), [("prio", "priority"), ("deadline", "deadline_s")])
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(one: Judge, name: str, meant: str) -> None:
    option: dict[str, Any] = {name: 3}
    refusals = [
        lambda: one.submit(ECHO, ONE, **option),
        lambda: next(one.judge_many([(ECHO, ONE)], **option)),
        lambda: Judge(workers=1, **option),
        lambda: AsyncJudge(1, **option),
    ]
    for refused in refusals:
        with pytest.raises(TypeError, match=f"unknown option `{name}`; did you mean `{meant}`"):
            refused()


@pytest.mark.process
def test_arguments_of_other_types_are_refused(one: Judge) -> None:
    with pytest.raises(TypeError, match="the program is a str; give a Program"):
        one.submit(ECHO, "print(1)")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the problem is a list; give a Problem"):
        one.submit([ECHO], ONE)  # type: ignore[arg-type]
    machine: dict[str, Any]
    for machine in ({"workers": "2"}, {"workers": -1}, {"minimum_tier": 3}, {"tier": "rot"}):
        with pytest.raises(UserError, match=str(next(iter(machine.values())))):
            Judge(**machine)


@pytest.mark.process
def test_every_option_can_be_set_for_all_programs_and_for_one() -> None:
    many = stdin_problem(*[(str(i), str(i)) for i in range(4)])
    echo = python("print(input())")
    with Judge(workers=1, max_cases=2, subset_seed=1, deadline_s=ENOUGH_S) as judge:
        assert len(judge.judge(many, echo).cases) == 2
        assert len(judge.judge(many, echo, max_cases=None).cases) == 4
        assert judge.judge(many, echo, max_cases=None, fork_per_case=False).shared_process
        assert not judge.judge(many, echo).shared_process


@given(st.text(max_size=8), st.integers(1, 60), st.integers(1, 60), st.integers())
def test_a_subset_is_a_function_of_problem_number_and_seed(
    name: str, count: int, at_most: int, seed: int
) -> None:
    chosen = chosen_cases(name, count, at_most, seed)
    assert chosen == chosen_cases(name, count, at_most, seed)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(count, at_most)
    assert set(chosen) <= set(range(count))


def test_every_case_gets_its_turn_as_the_seed_moves_on() -> None:
    drawn = [tuple(chosen_cases("p", 10, 3, seed)) for seed in range(200)]
    counts = [sum(case in subset for subset in drawn) for case in range(10)]
    assert min(counts) > 30  # 60 on average
    assert len(set(drawn)) > 60  # of 120
    assert drawn[0] == (3, 5, 9)  # the same in every version of Python


def test_siblings_meet_the_same_cases_and_are_scored_on_them_alone(judge: Judge) -> None:
    problem = stdin_problem(*[(str(i), str(i)) for i in range(12)])
    odd_ones = python("n = int(input())\nprint(n if n % 2 else -1)")
    for seed in range(4):
        chosen = chosen_cases(problem["id"], 12, 5, seed)
        right, half = judge.judge_many(
            [(problem, python("print(input())")), (problem, odd_ones)], max_cases=5, subset_seed=seed
        )
        assert right.accepted
        assert [case.index for case in right.cases] == chosen
        assert [case.index for case in half.cases] == chosen
        assert half.score == sum(i % 2 for i in chosen) / 5
    assert [case.index for case in judge.judge(problem, odd_ones).cases] == list(range(12))


@pytest.mark.process
def test_a_judge_may_be_closed_by_a_callback_of_its_judgement() -> None:
    judge = Judge(workers=1)
    closed: Future[str] = Future()

    def close(future: Future[Judgement]) -> None:
        judge.close()
        closed.set_result(future.result().verdict.value)

    judge.submit(ECHO, SLEEPER, deadline_s=0.3).add_done_callback(close)
    assert closed.result(ENOUGH_S) in ("time_limit", "judge_error")
    with pytest.raises(RuntimeError, match="closed"):
        judge.judge(ECHO, ONE)
    other = Judge(workers=1)
    done: Future[str] = Future()
    other.submit(ECHO, ONE).add_done_callback(lambda future: (other.close(), done.set_result("closed")))
    assert done.result(ENOUGH_S) == "closed"

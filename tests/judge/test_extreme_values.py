"""No number of a problem or an option costs the judge a worker, however extreme it is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judge.judge_problems import python, stdin_problem
from whetstone.core.errors import UserError
from whetstone.core.problem import CaseGroup, Compare, Limits
from whetstone.judge import Judge, Judgement, Verdict
from whetstone.judge.workers.job_queue import QueuedJob

ECHO = stdin_problem(("1\n", "1\n"))
PROGRAM = python("print(input())")
EXTREME = st.one_of(
    st.sampled_from([0, -1, 5e-324, 1e-9, 3600, 3601, 20_000, 2**31, 2**63, 2**64, 1e300, 1.8e308, math.nan]),
    st.floats(),
    st.integers(min_value=-(2**70), max_value=2**70),
)


@pytest.fixture(scope="module")
def one_worker() -> Iterator[Judge]:
    with Judge(workers=1) as judge:
        yield judge


def as_dict(**fields: Any) -> dict[str, Any]:
    cases = [{"input": "1\n", "output": "1\n"}]
    return {"id": "t", "statement": "", "tests": {"kind": "stdin", "cases": cases}, **fields}


@pytest.mark.process
@settings(max_examples=60)
@given(
    field=st.sampled_from(["cpu_s", "memory_mb", "output_mb", "weight", "abs", "deadline_s", "priority"]),
    value=EXTREME,
)
def test_an_extreme_number_is_refused_by_name_or_judged(one_worker: Judge, field: str, value: Any) -> None:
    problem, options = as_dict(), {}
    if field in ("deadline_s", "priority"):
        options = {field: value}
    elif field == "weight":
        problem = as_dict(scoring={"mode": "groups", "groups": [{"cases": [0], "weight": value}]})
    elif field == "abs":
        problem = as_dict(compare={"mode": "floats", "abs": value})
    else:
        problem = as_dict(limits={field: value})
    refusal, judgement = "", None
    try:
        judgement = one_worker.submit(problem, PROGRAM, **options).result(300)
    except UserError as error:
        refusal = str(error)
    assert field in refusal or (judgement is not None and isinstance(judgement.verdict, Verdict))
    assert one_worker.judge(ECHO, PROGRAM).accepted
    assert len(one_worker.worker_pids()) == 1


@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0, 1e300])
def test_structs_made_in_python_are_checked_as_well(value: float) -> None:
    for make in (
        lambda: Limits(cpu_s=value),
        lambda: Limits(memory_mb=value),
        lambda: Limits(output_mb=value),
        lambda: CaseGroup(cases=[0], weight=value),
        lambda: Compare(mode="floats", rel=value),
    ):
        with pytest.raises(ValueError, match=r"`(cpu_s|memory_mb|output_mb|weight|rel)` must be"):
            make()


@pytest.mark.process
def test_the_largest_limits_judge_as_usual(one_worker: Judge) -> None:
    limits = {"cpu_s": 3600, "memory_mb": 1 << 20, "output_mb": 1024}
    assert one_worker.judge(as_dict(limits=limits), PROGRAM).accepted


@pytest.mark.process
@pytest.mark.parametrize("silence_s", [1e300, math.inf, math.nan, -math.inf])
def test_a_thread_that_fails_over_one_program_settles_it_and_goes_on(
    silence_s: float, one_worker: Judge
) -> None:
    """The pool is handed a timeout that no system call takes, past everything that would refuse it."""
    pool = one_worker._started_pool()  # pyright: ignore[reportPrivateUsage]
    future: Future[Judgement] = pool.submit(QueuedJob(b"no task at all", silence_s))
    assert future.result(300).verdict is Verdict.JUDGE_ERROR
    assert one_worker.judge(ECHO, PROGRAM).accepted

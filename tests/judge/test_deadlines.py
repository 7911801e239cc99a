"""Judgements whose deadline passed: failures count, and whoever took most of the time is to blame."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.busy import skip_if_busy
from tests.judge.judge_problems import assert_problem, python, stdin_problem
from tests.judge.judge_processes import ENOUGH_S
from tests.sandbox.test_starvation import spinning
from whetstone.core.problem import problem_from
from whetstone.judge import CaseJudgement, Judge, Judgement, JudgeOptions, Verdict
from whetstone.judge.deadline import DeadlinePassed
from whetstone.judge.judging import conclude_unfinished
from whetstone.judge.options import queued_before
from whetstone.judge.outcome import limit_exceeded
from whetstone.sandbox import EndReason, RunResult
from whetstone.service.case_parallel import joined, parts_of

ATTEMPTS = 5
LIMITS = {"cpu_s": 1.0, "memory_mb": 256.0, "output_mb": 1.0}
THIRTY = [(f"{n}\n", f"{n}\n") for n in range(30)]
FRACTION = {"mode": "fraction"}
SPIN = python("while True: pass")
SLEEP = python("import time\ntime.sleep(1000)")


def judged_in_time(judge: Judge, problem: dict[str, Any], program: Any, **options: Any) -> Judgement:
    """The judgement on the first attempt in which the machine was not too busy to say.

    Skips the test if it was too busy on all of them.
    """
    for _ in range(ATTEMPTS):
        judgement = judge.judge(problem, program, **options)
        if judgement.verdict is not Verdict.JUDGE_ERROR:
            return judgement
    skip_if_busy()
    pytest.fail(f"no verdict in {ATTEMPTS} attempts")


@pytest.mark.process
@pytest.mark.crowd
def test_a_program_that_spins_in_every_case_has_failed(judge: Judge) -> None:
    judgement = judged_in_time(judge, stdin_problem(*THIRTY, limits=LIMITS), SPIN, deadline_s=5.0)
    assert (judgement.verdict, judgement.score) == (Verdict.TIME_LIMIT, 0.0)
    assert judgement.cases[0].verdict is Verdict.TIME_LIMIT


@pytest.mark.process
def test_a_failure_before_the_deadline_is_the_verdict(judge: Judge) -> None:
    program = python("n = int(input())\nif n == 0: print('no')\nelse:\n    import time; time.sleep(1000)")
    problem = stdin_problem(*THIRTY, limits=LIMITS)
    judgement = judged_in_time(judge, problem, program, deadline_s=3.0)
    assert (judgement.verdict, judgement.score) == (Verdict.WRONG_ANSWER, 0.0)
    # In one process for all cases, no answer came out of it.
    assert judged_in_time(judge, problem, program, deadline_s=3.0, fork_per_case=False).score == 0.0


@pytest.mark.process
def test_cases_that_were_accepted_before_the_deadline_earn_their_share(judge: Judge) -> None:
    program = python("n = int(input())\nif n == 6:\n    import time; time.sleep(1000)\nprint(n)")
    problem = stdin_problem(*THIRTY, limits=LIMITS, scoring=FRACTION)
    judgement = judged_in_time(judge, problem, program, deadline_s=3.0)
    assert (judgement.verdict, judgement.score) == (Verdict.TIME_LIMIT, 6 / 30)
    assert [case.verdict for case in judgement.cases] == [*[Verdict.ACCEPTED] * 6, Verdict.TIME_LIMIT]
    assert "deadline" in judgement.reason


@pytest.mark.process
@pytest.mark.crowd
def test_a_first_run_that_a_limit_stopped_counts_when_there_is_no_time_to_confirm_it(judge: Judge) -> None:
    judgement = judged_in_time(judge, assert_problem(asserts=["assert f(1) == 1"]) | {"limits": LIMITS},
                               python("def f(x):\n    while True: pass"), deadline_s=1.7)  # fmt: skip
    assert (judgement.verdict, judgement.score) == (Verdict.TIME_LIMIT, 0.0)


@pytest.mark.process
def test_who_waited_in_the_queue_longer_than_it_ran_is_not_blamed() -> None:
    one_case = stdin_problem(("", "1"), limits={**LIMITS, "cpu_s": 60.0})
    with Judge(workers=1) as judge:
        blocker = judge.submit(one_case, SLEEP, priority=1)
        behind = judge.submit(one_case, SLEEP, deadline_s=4.0)
        behind.add_done_callback(lambda _: blocker.cancel())
        # It never ran at all.
        never = behind.result(ENOUGH_S)
        assert (never.verdict, never.score, never.cases) == (Verdict.JUDGE_ERROR, None, [])
        # A caller that has a queue of its own says how long it took.
        late = judge.judge(one_case, SLEEP, deadline_s=1.0, queued_s=3.0)
        assert (late.verdict, late.score) == (Verdict.JUDGE_ERROR, None)
        assert "3.0 s in the queue" in late.reason


@given(*[st.floats(0, 1e6)] * 3)
def test_whoever_took_more_of_the_time_is_to_blame(queued_s: float, own_s: float, waited_s: float) -> None:
    late = DeadlinePassed(queued_s, own_s + waited_s)
    if own_s > (queued_s + waited_s) * 1.001 + 1e-3:
        assert late.is_of_program(waited_s)
    if own_s < (queued_s + waited_s) * 0.999 - 1e-3:
        assert not late.is_of_program(waited_s)


def failed(number: int) -> CaseJudgement:
    return CaseJudgement(Verdict.WRONG_ANSWER, index=number)


@pytest.mark.parametrize(
    ("scoring", "options", "score"),
    [({"mode": "all"}, {}, 0.0), (FRACTION, {}, None), (FRACTION, {"stop_at_first_failure": True}, 0.0)],
)
def test_a_failure_counts_if_it_decides_the_score_of_an_overdue_program(
    scoring: dict[str, str], options: dict[str, bool], score: float | None
) -> None:
    problem = problem_from(stdin_problem(*THIRTY, scoring=scoring))
    judgement = conclude_unfinished(problem, JudgeOptions(**options), [failed(3)], "root", "late")
    verdict = Verdict.JUDGE_ERROR if score is None else Verdict.WRONG_ANSWER
    assert (judgement.verdict, judgement.score) == (verdict, score)
    assert judgement.reason == ("late" if score is None else "")


def test_a_part_that_was_not_judged_hides_no_failure_in_another_part() -> None:
    problem = problem_from(stdin_problem(*THIRTY, scoring={"mode": "all"}))
    parts = parts_of(problem, 2)
    lost = Judgement(Verdict.JUDGE_ERROR, [], None, "root", "its deadline passed")
    right = Judgement(Verdict.ACCEPTED, [CaseJudgement(Verdict.ACCEPTED)] * 15, 1.0, "root")
    wrong = Judgement(Verdict.WRONG_ANSWER, [failed(n) for n in range(15)], 0.0, "root")
    assert joined(problem, parts, [wrong, lost], {}).score == 0.0
    assert joined(problem, parts, [right, lost], {}).verdict is Verdict.JUDGE_ERROR
    assert joined(problem, parts, [lost, wrong], {}).score == 0.0


def test_the_time_in_an_earlier_queue_is_a_number() -> None:
    assert queued_before({"queued_s": 2, "priority": "x"}) == 2.0
    assert queued_before({}) == 0.0
    for wrong in ("soon", -1.0, float("nan"), True):
        with pytest.raises(Exception, match="queued_s"):
            queued_before({"queued_s": wrong})


@pytest.mark.process
@pytest.mark.crowd
def test_the_reason_of_an_overdue_starved_program_has_its_waiting_time() -> None:
    """On one core beside twelve that compute, a program gets less than a tenth of it."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with Judge(workers=1) as judge, spinning(12):
            problem = stdin_problem(("", "1"), limits={**LIMITS, "cpu_s": 60.0})
            judgement = judge.judge(problem, SPIN, deadline_s=8.0)
    finally:
        os.sched_setaffinity(0, cores)
    assert (judgement.verdict, judgement.score) == (Verdict.JUDGE_ERROR, None)
    waited = re.search(
        r"after ([\d.]+) s in the queue and ([\d.]+) s of waiting for a core", judgement.reason
    )
    assert waited is not None
    assert 4.0 <= float(waited[1]) + float(waited[2]) <= 8.5


def test_a_starved_run_says_how_long_it_waited() -> None:
    result = RunResult(EndReason.STARVED, None, 9, 1.25, 242.0, 0, b"", b"", b"", waited_s=239.5)
    judged = limit_exceeded(result)
    assert judged is not None
    assert judged.verdict is Verdict.JUDGE_ERROR
    assert "the program was ready and waited 239.5 of 242.0 s for a core, and got 1.2 s" in judged.reason

"""Judgements on whole problems: cases, score, reason, and errors of the caller."""

from __future__ import annotations

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import python, stdin_problem
from whetstone.core.errors import UserError
from whetstone.judge import Judge, Program, Verdict

DATA = data_beside(__file__)

pytestmark = [pytest.mark.process, pytest.mark.isolation]

SUM = stdin_problem(("3\n1 2 3\n", "6\n"), ("1\n5\n", "5\n"))


def test_text_that_is_not_unicode_does_not_compile(judge: Judge) -> None:
    assert judge.judge(SUM, python("x = '\ud800'")).verdict is Verdict.COMPILE_ERROR


def test_cases_are_judged_apart_and_the_score_is_their_share(judge: Judge) -> None:
    judgement = judge.judge(SUM, python("print(6)"))
    assert [case.verdict for case in judgement.cases] == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER]
    assert judgement.verdict is Verdict.WRONG_ANSWER
    assert judgement.score == 0.5
    assert all(case.cpu_s > 0 and case.peak_bytes > 0 for case in judgement.cases)
    assert judgement.reason == "token 1: got '6', expected '5'"


def test_bad_input_is_the_callers_error_and_no_verdict(judge: Judge) -> None:
    with pytest.raises(UserError, match="the judge runs python"):
        judge.judge(SUM, Program("cobol", "x"))
    with pytest.raises(UserError, match="tests"):
        judge.judge({"id": "x", "statement": ""}, python("x"))
    with pytest.raises(UserError, match="tier"):
        Judge(workers=1, minimum_tier="rot")
    assert judge.judge(SUM, None).verdict is Verdict.NO_CODE


def test_processes_are_for_programs_to_use(judge: Judge) -> None:
    if judge.isolation == "restricted":
        pytest.skip("a program has one process on this tier")
    judgement = judge.judge(stdin_problem(("", "ok\n")), python(DATA["pool"]))
    assert judgement.accepted, judgement.reason

"""Cases judged within a budget of wall time: none is begun after it, and each that was has its judgement.

The judge is given the cases in pieces, the larger the faster they are, so that little runs over the budget.
"""

from __future__ import annotations

import asyncio

import msgspec

from whetstone.judge_service.calls import Call
from whetstone.judge_service.refusal import Refused
from whetstone.judge_service.spread import piece
from whetstone.problem import AssertTests, Problem, Program
from whetstone.verdict import CaseJudgement, Judgement, Verdict

_FIRST_PIECE = 2


_TESTS_FAILED = ("the checker ", "the interactor ")
"""How the reason begins where one of these is to blame, and not the machine."""


class Budget(msgspec.Struct, frozen=True):
    """Seconds of wall time, whether cases are judged after one that failed, and whether a checker that fails
    refuses the case, as ScaleBox has it."""

    wall_s: float
    run_all: bool
    failing_checker_refuses: bool = False


class Judged(msgspec.Struct):
    """The cases that were begun, in order; the first verdict other than acceptance; of how many."""

    cases: list[CaseJudgement]
    verdict: Verdict
    total: int
    reason: str = ""


async def judged_within(
    call: Call, deadline: float, problem: Problem, program: Program, budget: Budget
) -> Judged:
    """Judge ``problem``'s cases in order, as far as the budget goes. Raises Refused."""
    budget_s, run_all = budget.wall_s, budget.run_all
    loop = asyncio.get_running_loop()
    total = _count(problem)
    found = Judged([], Verdict.ACCEPTED, total)
    began, slowest_s, careful = loop.time(), 0.0, False
    size = total if 2 * total * problem.limits.cpu_s <= budget_s else _FIRST_PIECE
    while len(found.cases) < total:
        start, left_s = len(found.cases), budget_s - (loop.time() - began)
        if left_s <= 0 and start:
            break
        part = piece(problem, start, start + size)
        options = {"stop_at_first_failure": careful or not run_all}
        judgement = await call.service.judged(call.visit.client, deadline, part, program, options)
        if budget.failing_checker_refuses:
            judgement = _refused_by_failing(judgement)
        _settled(judgement, problem)
        if not judgement.cases:
            found.verdict, found.reason = judgement.verdict, judgement.reason
            break
        found.cases += [msgspec.structs.replace(c, index=c.index + start) for c in judgement.cases]
        failed = [c for c in judgement.cases if c.verdict is not Verdict.ACCEPTED]
        if failed and found.verdict is Verdict.ACCEPTED:
            found.verdict, found.reason = judgement.verdict, judgement.reason
        if (failed and not run_all) or any(c.verdict is Verdict.COMPILE_ERROR for c in failed):
            break
        careful = careful or any(c.verdict is Verdict.TIME_LIMIT for c in failed)
        slowest_s = max(slowest_s, *(c.wall_s for c in judgement.cases))
        size = max(1, min(2 * size, int(left_s / (4 * slowest_s + 0.001))))
    return found


def _refused_by_failing(judgement: Judgement) -> Judgement:
    """The judgement where each case over which the checker failed is a wrong answer."""
    cases = [
        msgspec.structs.replace(case, verdict=Verdict.WRONG_ANSWER) if _tests_failed(case) else case
        for case in judgement.cases
    ]
    if any(case.verdict is Verdict.JUDGE_ERROR for case in cases) or not cases:
        return judgement
    failed = next((case for case in cases if case.verdict is not Verdict.ACCEPTED), None)
    if failed is None:
        return judgement
    verdict, reason = failed.verdict, failed.reason
    # The score is of our rules, and none of these clients' fields is made of it.
    return msgspec.structs.replace(judgement, verdict=verdict, reason=reason, cases=cases, score=0.0)


def _tests_failed(case: CaseJudgement | Judgement) -> bool:
    return case.verdict is Verdict.JUDGE_ERROR and case.reason.startswith(_TESTS_FAILED)


def _settled(judgement: Judgement, problem: Problem) -> None:
    """Raise Refused where we failed: that is no verdict on the program, and known clients ask again.

    They need not where the tests themselves are to blame.
    """
    if judgement.verdict is not Verdict.JUDGE_ERROR:
        return
    if _tests_failed(judgement) or isinstance(problem.tests, AssertTests):
        raise Refused(422, "judge_error", f"the tests themselves fail: {judgement.reason}")
    raise Refused(504, "judge_error", f"it could not be judged: {judgement.reason}", 1.0)


def _count(problem: Problem) -> int:
    return 1 if isinstance(problem.tests, AssertTests) else len(problem.tests.cases)

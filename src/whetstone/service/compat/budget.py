"""Judge cases within a budget of wall time. No case starts after it, and each started case is judged.

The judge gets the cases in pieces. Their size grows if the cases are fast, so little runs over the budget.
"""

from __future__ import annotations

import asyncio

import msgspec

from whetstone.core.http.refusal import RequestRefused
from whetstone.core.problem import AssertTests, Problem, Program
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict, is_fault_of_tests
from whetstone.service.case_parallel import slice_cases
from whetstone.service.endpoint_app import EndpointCall

# The cost of a case is unknown at first.
_FIRST_PIECE = 2


class CaseVerdicts(msgspec.Struct):
    """The started cases in order, the first verdict that is not acceptance, and the number of all cases."""

    cases: list[CaseJudgement]
    verdict: Verdict
    total: int
    reason: str = ""


async def judge_within(
    call: EndpointCall, deadline: float, problem: Problem, program: Program, budget_s: float, *, run_all: bool
) -> CaseVerdicts:
    """Judge the cases of ``problem`` in order, until the budget ends. Raises RequestRefused.

    budget_s: the wall time for all cases. run_all: judge the cases after a failed one.
    """
    loop = asyncio.get_running_loop()
    total = _case_count(problem)
    result = CaseVerdicts([], Verdict.ACCEPTED, total)
    start_time, slowest_s, stops_early = loop.time(), 0.0, False
    size = total if 2 * total * problem.limits.cpu_s <= budget_s else _FIRST_PIECE
    while len(result.cases) < total:
        start, left_s = len(result.cases), budget_s - (loop.time() - start_time)
        if left_s <= 0 and start:
            break
        part = slice_cases(problem, start, start + size)
        options = {"stop_at_first_failure": stops_early or not run_all}
        judgement = await call.service.judged(call.visit.client, deadline, part, program, options)
        _check_judged(judgement, problem)
        if not judgement.cases:
            result.verdict, result.reason = judgement.verdict, judgement.reason
            break
        result.cases += [msgspec.structs.replace(c, index=c.index + start) for c in judgement.cases]
        failed = [c for c in judgement.cases if c.verdict is not Verdict.ACCEPTED]
        if failed and result.verdict is Verdict.ACCEPTED:
            result.verdict, result.reason = judgement.verdict, judgement.reason
        if (failed and not run_all) or any(c.verdict is Verdict.COMPILE_ERROR for c in failed):
            break
        # Cases that reach the time limit use up the budget, so after one the next pieces end at a failure.
        stops_early = stops_early or any(c.verdict is Verdict.TIME_LIMIT for c in failed)
        slowest_s = max(slowest_s, *(c.wall_s for c in judgement.cases))
        # At most a quarter of the rest of the budget, if all cases are as slow as the slowest.
        size = max(1, min(2 * size, int(left_s / (4 * slowest_s + 0.001))))
    return result


def _check_judged(judgement: Judgement, problem: Problem) -> None:
    """Raise RequestRefused for JUDGE_ERROR: it is no verdict on the program.

    Known clients retry after 504, but not after 422, which blames the tests.
    """
    if judgement.verdict is not Verdict.JUDGE_ERROR:
        return
    if is_fault_of_tests(judgement) or isinstance(problem.tests, AssertTests):
        raise RequestRefused(422, "judge_error", f"the tests themselves fail: {judgement.reason}")
    raise RequestRefused(504, "judge_error", f"the program could not be judged: {judgement.reason}", 1.0)


def _case_count(problem: Problem) -> int:
    return 1 if isinstance(problem.tests, AssertTests) else len(problem.tests.cases)

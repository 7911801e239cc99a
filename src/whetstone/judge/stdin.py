"""Judging a ``stdin`` case: text in, text out, compared here or by the problem's checker."""

from __future__ import annotations

from whetstone.judge.boxes import Boxes
from whetstone.judge.checkers import check
from whetstone.judge.compare import compare
from whetstone.judge.outcome import case, judge_failure, run_limits, storable
from whetstone.judge.protocols import Said
from whetstone.judge.runnable import CompileFailure, prepare
from whetstone.problem import Checker, Problem, Program, StdinCase
from whetstone.sandbox import RunResult
from whetstone.verdict import CaseJudgement, Verdict


def judge_stdin(boxes: Boxes, problem: Problem, test: StdinCase, program: Program) -> CaseJudgement:
    """Run ``program`` on a case's input and judge what it printed. Raises SandboxFault."""
    limits = problem.limits
    runnable = prepare(boxes, program)
    if isinstance(runnable, CompileFailure):
        return CaseJudgement(Verdict.COMPILE_ERROR, reason=storable(runnable.reason))
    sandbox, job = runnable.job(
        run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb),
        stdin=test.input.encode("utf-8", "surrogatepass"),
    )
    result = sandbox.run(job)
    failed = runnable.failure(result)
    if failed is not None:
        return failed
    if problem.checker is not None:
        return _checked(boxes, problem.checker, test, result)
    right, reason = compare(result.stdout, test.output, problem.compare)
    return case(result, Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER, reason)


def _checked(boxes: Boxes, checker: Checker, test: StdinCase, result: RunResult) -> CaseJudgement:
    """The checker's decision, which is the only one."""
    said, reason = check(boxes, checker, test, result.stdout)
    if said is Said.FAILED:
        return judge_failure(reason)
    return case(result, Verdict.ACCEPTED if said is Said.ACCEPTED else Verdict.WRONG_ANSWER, reason)

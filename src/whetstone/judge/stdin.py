"""Judging a ``stdin`` case: text in, text out, compared here or by the problem's checker."""

from __future__ import annotations

from whetstone.judge.boxes import Boxes
from whetstone.judge.checkers import Said, check
from whetstone.judge.compare import compare
from whetstone.judge.outcome import COMPILE_ERROR, case, crashed, judge_failure, limit_exceeded, run_limits
from whetstone.problem import Checker, Problem, StdinCase
from whetstone.sandbox import Job, RunResult
from whetstone.verdict import CaseJudgement, Verdict


def judge_stdin(boxes: Boxes, problem: Problem, test: StdinCase, source: str) -> CaseJudgement:
    """Run ``source`` on a case's input and judge what it printed. Raises SandboxFault."""
    limits = problem.limits
    job = Job(
        "script",
        source.encode("utf-8", "surrogatepass"),
        run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb),
        stdin=test.input.encode("utf-8", "surrogatepass"),
    )
    result = boxes.programs.run(job)
    failed = limit_exceeded(result)
    if failed is None and result.result == COMPILE_ERROR and result.exit_code == 1:
        failed = case(result, Verdict.COMPILE_ERROR, "the program does not compile")
    failed = failed or crashed(result)
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

"""Judging a ``stdin`` case: text in, text out, compared here or by the problem's checker."""

from __future__ import annotations

from whetstone.judge.boxes import Boxes, harness_job
from whetstone.judge.compare import compare
from whetstone.judge.outcome import COMPILE_ERROR, case, crashed, judge_failure, limit_exceeded, run_limits
from whetstone.judge.values import WireError, decode, encode
from whetstone.problem import Problem, PythonChecker, StdinCase
from whetstone.sandbox import Ended, Job, RunResult
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
    if problem.checker is not None and not isinstance(problem.checker, PythonChecker):
        return judge_failure(f"checkers like {problem.checker} are not run yet")
    if problem.checker is not None:
        return _checked(boxes, problem.checker.source, test, result)
    right, reason = compare(result.stdout, test.output, problem.compare)
    return case(result, Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER, reason)


def _checked(boxes: Boxes, checker: str, test: StdinCase, result: RunResult) -> CaseJudgement:
    """The checker's decision. It runs beside the program's sandbox, with fixed generous limits."""
    right, reason = _decision(boxes, checker, test, result.stdout.decode("utf-8", "replace"))
    if right is None and _decision(boxes, checker, test, test.output)[0] is not None:
        # It decides on the expected output, so what it cannot read is the program's fault: else
        # printing nonsense would be a way out of being judged.
        return case(result, Verdict.WRONG_ANSWER, f"the problem's checker cannot read the output: {reason}")
    if right is None:
        return judge_failure(reason)
    return case(result, Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER, reason)


def _decision(boxes: Boxes, checker: str, test: StdinCase, output: str) -> tuple[bool | None, str]:
    """What the checker says of ``output``, with a reason; None when it does not decide."""
    payload = encode([checker, test.input, output, test.output])
    checked = boxes.tests.run(harness_job("checker", payload, run_limits(20, 2048, 16)))
    if checked.ended is not Ended.EXITED or checked.exit_code != 0:
        return None, f"the checker did not decide: {checked.ended}"
    try:
        answer = decode(checked.result)
    except WireError as error:
        return None, f"the checker did not decide: {error}"
    if answer == [True]:
        return True, ""
    if answer == [False]:
        return False, "refused by the problem's checker"
    return None, f"the checker failed: {answer[-1]}"

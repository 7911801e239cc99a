"""Judging a ``stdin`` case: text in, text out, compared here or by the problem's checker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whetstone.judge.answers.checkers import check
from whetstone.judge.answers.protocols import Said
from whetstone.judge.answers.text import compare
from whetstone.judge.boxes import Boxes, Side
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.outcome import case, judge_failure, run_limits, storable
from whetstone.problem import Checker, Problem, Program, StdinCase
from whetstone.sandbox import RunResult
from whetstone.sandbox.sequence import sequence_job
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
    return runnable.failure(result) or _judge_output(boxes, problem, test, result, result.stdout)


def judge_python_sequence(
    boxes: Boxes, problem: Problem, cases: Sequence[StdinCase], source: str
) -> Iterator[CaseJudgement]:
    """The same for several cases of a Python program in one process: those that came to their end, in order.

    Each is judged when it is asked for. Raises SandboxFault.
    """
    limits = problem.limits
    run = sequence_job(
        source.encode("utf-8", "surrogatepass"),
        [test.input.encode("utf-8", "surrogatepass") for test in cases],
        run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb),
    )
    result = boxes.python(Side.PROGRAM, source).run(run.job)
    claims = run.claims(result)
    if len(claims) > len(cases):
        return
    for claim, test in zip(claims, cases, strict=False):
        if claim.succeeded:
            yield _judge_output(boxes, problem, test, result, claim.stdout)
        else:
            yield case(result, Verdict.RUNTIME_ERROR, "did not end well")


def _judge_output(
    boxes: Boxes, problem: Problem, test: StdinCase, result: RunResult, output: bytes
) -> CaseJudgement:
    """What a program that ended well wrote: right, or not."""
    if problem.checker is not None:
        return _checked(boxes, problem.checker, test, result, output)
    right, reason = compare(output, test.output, problem.compare)
    return case(result, Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER, reason)


def _checked(
    boxes: Boxes, checker: Checker, test: StdinCase, result: RunResult, output: bytes
) -> CaseJudgement:
    """The checker's decision, which is the only one."""
    said, reason = check(boxes, checker, test, output)
    if said is Said.FAILED:
        return judge_failure(reason)
    return case(result, Verdict.ACCEPTED if said is Said.ACCEPTED else Verdict.WRONG_ANSWER, reason)

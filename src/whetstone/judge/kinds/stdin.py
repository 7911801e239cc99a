"""Judging a ``stdin`` case: text in, text out, compared here or by the problem's checker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whetstone.judge.answers.checkers import check
from whetstone.judge.answers.responsibility import Blame, Decision
from whetstone.judge.answers.text import compare
from whetstone.judge.blame import NotJudged, despite_faults
from whetstone.judge.boxes import Boxes, Side
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.outcome import case, judge_failure, run_limits
from whetstone.problem import Checker, Problem, Program, StdinCase
from whetstone.sandbox import RunResult
from whetstone.sandbox.execute import NotExecuted
from whetstone.sandbox.sequence import sequence_job
from whetstone.verdict import CaseJudgement, Verdict, storable


def judge_stdin(boxes: Boxes, problem: Problem, test: StdinCase, program: Program) -> CaseJudgement:
    """Run ``program`` on a case's input and judge what it printed. Raises SandboxFault."""
    ran = _run(boxes, problem, test, program)
    return ran if isinstance(ran, CaseJudgement) else _judge_output(boxes, problem, test, ran, ran.stdout)


def _run(boxes: Boxes, problem: Problem, test: StdinCase, program: Program) -> RunResult | CaseJudgement:
    """The run of a program that ended well; or the judgement of one that did not."""
    limits = problem.limits
    runnable = prepare(boxes, program)
    if isinstance(runnable, CompileFailure):
        return CaseJudgement(Verdict.COMPILE_ERROR, reason=storable(runnable.reason))
    sandbox, job = runnable.job(
        run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb),
        stdin=test.input.encode("utf-8", "surrogatepass"),
    )
    result = sandbox.run(job)
    return runnable.failure(result) or result


def judge_python_sequence(
    boxes: Boxes, problem: Problem, cases: Sequence[StdinCase], source: str
) -> Iterator[CaseJudgement]:
    """The same for several cases of a Python program in one process: judgements on those that ended.

    They come in order; cases after one that ended the process get none. Each is judged when it is asked for.
    Raises SandboxFault.
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
        return _checked(boxes, problem, problem.checker, test, result, output)
    right, reason = compare(output, test.output, problem.compare)
    return case(result, Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER, reason)


def _checked(
    boxes: Boxes, problem: Problem, checker: Checker, test: StdinCase, result: RunResult, output: bytes
) -> CaseJudgement:
    """The checker's decision, which is the only one. Where its sandbox dies, only it is run again."""
    expected = test.output.encode("utf-8", "surrogatepass")

    def right_ones() -> Iterator[bytes]:
        for reference in problem.references:
            ran = _run(boxes, problem, test, reference)
            if isinstance(ran, RunResult):
                yield ran.stdout

    def harmless(_: float) -> bool:
        check(boxes, checker, test, expected, right_ones)
        return True

    def attempt() -> Decision:
        try:
            return check(boxes, checker, test, output, right_ones)
        except NotExecuted as fault:
            return Decision(Blame.JUDGE, str(fault))

    try:
        blame, reason = despite_faults("the checker's sandbox", attempt, harmless)
    except NotJudged as failure:
        return case(result, failure.verdict, str(failure))
    if blame is Blame.JUDGE:
        return judge_failure(reason)
    return case(result, Verdict.ACCEPTED if blame is Blame.NOBODY else Verdict.WRONG_ANSWER, reason)

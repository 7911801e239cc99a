"""Judge ``stdin`` cases: text in, text out, compared in the judge or by the problem's checker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whetstone.core.problem import Problem, Program, StdinCase
from whetstone.core.verdict import CaseJudgement, Verdict, storable
from whetstone.judge.answers.checkers import check, judge_by_checker
from whetstone.judge.answers.text import compare
from whetstone.judge.languages.runnable import CompileFailure, prepare
from whetstone.judge.outcome import case, run_limits
from whetstone.judge.sandboxes import SandboxRole, SandboxSet
from whetstone.sandbox import RunResult
from whetstone.sandbox.script import sequence_job


def judge_stdin(sandboxes: SandboxSet, problem: Problem, test: StdinCase, program: Program) -> CaseJudgement:
    """Run ``program`` on the input of a case and judge its output. Raises SandboxFault."""
    result = _run(sandboxes, problem, test, program)
    if isinstance(result, CaseJudgement):
        return result
    return _judge_output(sandboxes, problem, test, result, result.stdout)


def _run(
    sandboxes: SandboxSet, problem: Problem, test: StdinCase, program: Program
) -> RunResult | CaseJudgement:
    """Return the result of a run that ended normally; otherwise its judgement. Raises SandboxFault."""
    runnable = prepare(sandboxes, program)
    if isinstance(runnable, CompileFailure):
        return CaseJudgement(Verdict.COMPILE_ERROR, reason=storable(runnable.reason))
    sandbox, job = runnable.job(
        run_limits(problem.limits),
        stdin=test.input.encode("utf-8", "surrogatepass"),
    )
    result = sandbox.run(job)
    return runnable.failure(result) or result


def judge_python_sequence(
    sandboxes: SandboxSet, problem: Problem, cases: Sequence[StdinCase], source: str
) -> Iterator[CaseJudgement]:
    """Yield judgements on cases of a Python program that run in one process, in order.

    Cases after one that ended the process have none. Each output is compared when its judgement is requested.
    Raises SandboxFault.
    """
    run = sequence_job(
        source.encode("utf-8", "surrogatepass"),
        [test.input.encode("utf-8", "surrogatepass") for test in cases],
        run_limits(problem.limits),
    )
    result = sandboxes.python(SandboxRole.PROGRAM, source).run(run.job)
    claims = run.claims(result)
    # The process wrote the claims itself. More claims than cases are forged.
    if len(claims) > len(cases):
        return
    for claim, test in zip(claims, cases, strict=False):
        if claim.succeeded:
            yield _judge_output(sandboxes, problem, test, result, claim.stdout)
        else:
            yield case(result, Verdict.RUNTIME_ERROR, "did not end normally")


def _judge_output(
    sandboxes: SandboxSet, problem: Problem, test: StdinCase, result: RunResult, output: bytes
) -> CaseJudgement:
    """Judge the output of a program that ended normally. A checker decides alone."""
    checker = problem.checker
    if checker is None:
        right, reason = compare(output, test.output, problem.compare)
        return case(result, Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER, reason)
    expected = test.output.encode("utf-8", "surrogatepass")

    def reference_outputs() -> Iterator[bytes]:
        for reference in problem.references:
            reference_result = _run(sandboxes, problem, test, reference)
            if isinstance(reference_result, RunResult):
                yield reference_result.stdout

    return judge_by_checker(
        result,
        lambda: check(sandboxes, checker, test, output, reference_outputs),
        lambda: check(sandboxes, checker, test, expected, reference_outputs),
    )

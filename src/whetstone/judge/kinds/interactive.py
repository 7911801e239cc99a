"""Judging an ``interactive`` case: program and interactor, each in a sandbox, joined by a relay.

Each goes on to its own end or limit; when one has left, the other reads end of file. The verdict, in
this order, which does not depend on who was faster:

1. The program wrote more than its output limit: OUTPUT_LIMIT.
2. The program was ended for a limit: that limit. A wait of both for each other ends so, as TIME_LIMIT;
   unless the interactor was busy for most of that time, which is its own failure.
3. The interactor failed (a crash, a limit, an unknown exit, a flood of its own): JUDGE_ERROR. An exception
   that an interactor in Python raises over what the program wrote is a refusal, if one of the problem's
   references is accepted in this very case; without such a reference it is JUDGE_ERROR too.
4. The interactor refused: WRONG_ANSWER, however the program ended. Only where it refused because the
   program's output ended too early, a crash of the program is the better word: RUNTIME_ERROR.
5. The interactor accepted: the program must also have ended by itself with exit code 0.
"""

from __future__ import annotations

from whetstone.judge.answers.protocols import Decision, Said, decision_of, python_decision
from whetstone.judge.boxes import Boxes, Side, harness_job
from whetstone.judge.kinds.relay import Relay
from whetstone.judge.languages.runnable import CompileFailure, Runnable, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.outcome import case, judge_failure, outlasting, run_limits, storable
from whetstone.judge.values import encode
from whetstone.problem import (
    InteractiveCase,
    InteractiveTests,
    Interactor,
    Problem,
    Program,
    PythonInteractor,
)
from whetstone.sandbox import Ended, Job, RunLimits, RunResult, Sandbox, supervise
from whetstone.verdict import CaseJudgement, Verdict

_INTERACTOR_CPU_S = 20.0
_INTERACTOR_MEMORY_MB = 2048.0
_INTERACTOR_BYTES = 256 << 20
_ENDED_EARLY = "the program's output ended before the interaction did"
_BROKE_ON_PROGRAM = "the interactor cannot make sense of what the program wrote"


def judge_interactive(
    boxes: Boxes, problem: Problem, tests: InteractiveTests, test: InteractiveCase, program: Program
) -> CaseJudgement:
    """Let ``program`` talk to the problem's interactor and judge by what that says. Raises SandboxFault."""
    judged, decision = _converse(boxes, problem, tests.interactor, test, program)
    if decision.said is not Said.UNREADABLE:
        return judged
    for reference in problem.references:
        shown, _ = _converse(boxes, problem, tests.interactor, test, reference)
        if shown.verdict is Verdict.ACCEPTED:
            reason = f"{_BROKE_ON_PROGRAM}: {decision.reason}"
            return CaseJudgement(Verdict.WRONG_ANSWER, judged.cpu_s, judged.wall_s, judged.peak_bytes, reason)
    return judge_failure(f"{_BROKE_ON_PROGRAM}, and no reference shows that it works: {decision.reason}")


def _converse(
    boxes: Boxes, problem: Problem, interactor: Interactor, test: InteractiveCase, program: Program
) -> tuple[CaseJudgement, Decision]:
    """One conversation: the case's judgement, and what the interactor said."""
    runnable = prepare(boxes, program)
    if isinstance(runnable, CompileFailure):
        reason = storable(runnable.reason)
        return CaseJudgement(Verdict.COMPILE_ERROR, reason=reason), Decision(Said.REFUSED)
    limits = problem.limits
    bounds = run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb)
    with Relay(bounds.output_bytes, _INTERACTOR_BYTES) as relay:
        started = _interactor_job(boxes, interactor, test, bounds, relay.interactor_end.fileno())
        if isinstance(started, CompileFailure):
            return judge_failure(f"the interactor does not compile: {started.reason}"), Decision(Said.FAILED)
        relay.interactor_end.detach()
        other, ran = _run_both(*started, runnable, bounds, relay)
        decision = _decision(interactor, other)
        return _judgement(runnable, ran, other, decision, relay), decision


def _interactor_job(
    boxes: Boxes, interactor: Interactor, test: InteractiveCase, bounds: RunLimits, link: int
) -> tuple[Sandbox, Job] | CompileFailure:
    """Where and how the interactor runs: on the side of the tests, and longer than the program may."""
    limits = RunLimits(
        _INTERACTOR_CPU_S,
        int(_INTERACTOR_MEMORY_MB * (1 << 20)),
        bounds.output_bytes,
        outlasting(bounds),
    )
    if isinstance(interactor, PythonInteractor):
        payload = encode([interactor.source, test.input, test.answer])
        job = harness_job("interactor", payload, limits, link=link)
        return boxes.python(Side.TESTS, interactor.source), job
    runnable = prepare(boxes, Program(interactor.language, interactor.source), side=Side.TESTS)
    if isinstance(runnable, CompileFailure):
        return runnable
    files = {
        "input.txt": test.input.encode("utf-8", "surrogatepass"),
        "answer.txt": test.answer.encode("utf-8", "surrogatepass"),
    }
    if interactor.protocol == "testlib":
        return runnable.job(limits, args=("input.txt", "log.txt", "answer.txt"), files=files, link=link)
    files["feedback/"] = b""
    return runnable.job(limits, args=("input.txt", "answer.txt", "feedback/"), files=files, link=link)


def _run_both(
    sandbox: Sandbox, job: Job, runnable: Runnable, bounds: RunLimits, relay: Relay
) -> tuple[RunResult, RunResult]:
    """Both runs to their end: (interactor, program)."""
    other = sandbox.start(job)
    try:
        box, program_job = runnable.job(bounds, link=relay.program_end.fileno())
        ran = box.start(program_job)
    except BaseException:
        other.close()
        other.server.kill()
        raise
    relay.program_end.detach()  # the sandbox closed it once the child had it
    results = supervise([other, ran], grace_s=None)
    return results[0], results[1]


def _decision(interactor: Interactor, result: RunResult) -> Decision:
    if not isinstance(interactor, PythonInteractor):
        python = not language_named(interactor.language, "the interactor").run
        return decision_of("interactor", interactor.protocol, result, python=python)
    return python_decision(
        "interactor", result, refused="refused by the interactor", ended_early=_ENDED_EARLY
    )


def _judgement(
    runnable: Runnable, ran: RunResult, other: RunResult, decision: Decision, relay: Relay
) -> CaseJudgement:
    """The rules of this module's text, in their order."""
    if relay.program_flooded:
        return case(ran, Verdict.OUTPUT_LIMIT, "wrote more than allowed")
    failed = runnable.failure(ran)
    if ran.ended is Ended.WALL_LIMIT and other.cpu_s > ran.wall_s / 2:
        return judge_failure("the interactor kept the program waiting until the wall clock limit")
    if failed is not None and ran.ended not in (Ended.EXITED, Ended.SIGNALED):
        return failed
    if failed is not None and failed.verdict is Verdict.COMPILE_ERROR:
        return failed
    if relay.interactor_flooded:
        return judge_failure("the interactor wrote more than a program can be expected to read")
    if decision.said in (Said.FAILED, Said.UNREADABLE):
        return judge_failure(decision.reason)
    if failed is not None and (decision.said is Said.ACCEPTED or decision.reason == _ENDED_EARLY):
        return failed
    return case(
        ran, Verdict.ACCEPTED if decision.said is Said.ACCEPTED else Verdict.WRONG_ANSWER, decision.reason
    )

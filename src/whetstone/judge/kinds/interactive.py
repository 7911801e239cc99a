"""Judges an ``interactive`` case: program and interactor, each in a sandbox, connected by a relay.

When one has exited, the other reads end of file. The first rule that applies gives the verdict, which does
not depend on which process was faster:

1. The program does not compile: COMPILE_ERROR.
2. The program exceeded a limit, or wrote more than it may, and the interactor was still running when it got
   the end of file: that limit. The interactor's reaction to an end that a limit caused does not count. If
   both wait for each other, the verdict is TIME_LIMIT. But if the interactor used most of that time, it
   counts as exhausted.
3. The program crashed before the interactor exited: RUNTIME_ERROR.
4. The interactor refused: WRONG_ANSWER, whatever else the program does. The program is stopped at once, so
   that it cannot reach a time limit, after which it would be run again.
5. The interactor accepted: the program must also exit by itself, within its limits, with exit code 0.
6. The interactor failed: ``responsibility`` decides. It works if it accepts one of the problem's references
   in this case.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from whetstone.core.problem import (
    InteractiveCase,
    InteractiveTests,
    Interactor,
    Problem,
    Program,
    PythonInteractor,
)
from whetstone.core.verdict import CaseJudgement, Verdict, storable
from whetstone.judge.answers.protocols import callable_event, event_of
from whetstone.judge.answers.responsibility import Blame, CheckerEvent, Event, decide_blame, is_decision
from whetstone.judge.kinds.relay import OutputDigest, Relay
from whetstone.judge.languages.runnable import CompileFailure, Runnable, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.outcome import DIFFERS, case, judge_failure, outlasting, run_limits
from whetstone.judge.sandboxes import SandboxRole, SandboxSet, harness_job
from whetstone.judge.values import encode
from whetstone.sandbox import EndReason, RunLimits, RunResult, Sandbox, SandboxJob, supervise

_INTERACTOR_CPU_S = 20.0
_INTERACTOR_MEMORY_MB = 2048.0
_INTERACTOR_BYTES = 256 << 20
_UNPROVED = "the interactor failed, and no reference shows that it works"


class _Conversation(NamedTuple):
    """The results of the program and of the interactor."""

    judged: CaseJudgement | None
    """The case's judgement, unless the interactor failed."""
    event: Event
    ran: RunResult | None = None
    output: OutputDigest = (0, b"")


def judge_interactive(
    sandboxes: SandboxSet,
    problem: Problem,
    tests: InteractiveTests,
    number: int,
    program: Program,
    stopped: dict[int, Any],
) -> CaseJudgement:
    """Judge ``program`` by a conversation with the problem's interactor. Raises SandboxFault.

    If a time limit ``stopped`` an earlier run of this case, the program's output must begin as in that run.
    """
    test = tests.cases[number]
    conversation = _converse(sandboxes, problem, tests.interactor, test, program, stopped.get(number))
    if conversation.judged is not None:
        if conversation.judged.verdict is Verdict.TIME_LIMIT:
            stopped.setdefault(number, conversation.output)
        return conversation.judged

    def works() -> bool:
        trials = (_converse(sandboxes, problem, tests.interactor, test, r).judged for r in problem.references)
        return any(judged is not None and judged.verdict is Verdict.ACCEPTED for judged in trials)

    blame, reason = decide_blame("interactor", conversation.event, works, _UNPROVED)
    if blame is Blame.JUDGE or conversation.ran is None:
        return judge_failure(reason)
    return case(conversation.ran, Verdict.WRONG_ANSWER, reason)


def _converse(
    sandboxes: SandboxSet,
    problem: Problem,
    interactor: Interactor,
    test: InteractiveCase,
    program: Program,
    expected: OutputDigest | None = None,
) -> _Conversation:
    """Run one conversation. Raises SandboxFault."""
    runnable = prepare(sandboxes, program)
    if isinstance(runnable, CompileFailure):
        judged = CaseJudgement(Verdict.COMPILE_ERROR, reason=storable(runnable.reason))
        return _Conversation(judged, Event(CheckerEvent.REFUSED))
    bounds = run_limits(problem.limits)
    with Relay(bounds.output_bytes, _INTERACTOR_BYTES, expected) as relay:
        started = _interactor_job(sandboxes, interactor, test, bounds, relay.interactor_end.fileno())
        if isinstance(started, CompileFailure):
            return _Conversation(None, Event(CheckerEvent.BROKEN, f"it does not compile: {started.reason}"))
        relay.interactor_end.detach()
        interactor_sandbox, interactor_job = started
        interactor_run = interactor_sandbox.start(interactor_job)
        try:
            box, program_job = runnable.job(bounds, link=relay.program_end.fileno())
            program_run = box.start(program_job)
        except BaseException:
            interactor_run.close()
            interactor_run.server.kill()
            raise
        relay.program_end.detach()  # the sandbox closed it once the child had it
        relay.started(program_run, interactor_run)

        def grace(ended: RunResult) -> float | None:
            """After the interactor ended, the program may run on only if it was accepted."""
            event = _event(interactor, ended, saw_end=relay.saw_end)
            return None if event.kind is CheckerEvent.ACCEPTED else 0.0

        interactor_result, ran = supervise([interactor_run, program_run], grace)
        event = _event(interactor, interactor_result, saw_end=relay.saw_end)
        if relay.interactor_flooded and event.kind is not CheckerEvent.REFUSED:
            event = Event(CheckerEvent.FLOODED, "it wrote more than a program can be expected to read")
        if (
            ran.ended is EndReason.WALL_LIMIT
            and interactor_result.cpu_s > ran.wall_s / 2
            and event.kind is not CheckerEvent.REFUSED
        ):
            event = Event(CheckerEvent.EXHAUSTED, "it kept the program waiting until the wall clock limit")
            return _Conversation(None, event, ran)
        judged = _apply_rules(runnable, ran, event, relay)
    if not relay.output_as_expected and (judged is None or judged.verdict is Verdict.ACCEPTED):
        judged = case(ran, Verdict.TIME_LIMIT, DIFFERS)
    return _Conversation(judged, event, ran, relay.output_digest)


def _interactor_job(
    sandboxes: SandboxSet, interactor: Interactor, test: InteractiveCase, bounds: RunLimits, link: int
) -> tuple[Sandbox, SandboxJob] | CompileFailure:
    """Return the sandbox and job of the interactor: the role of tests, and a longer wall clock limit."""
    limits = RunLimits(
        _INTERACTOR_CPU_S,
        int(_INTERACTOR_MEMORY_MB * (1 << 20)),
        bounds.output_bytes,
        outlasting(bounds),
    )
    if isinstance(interactor, PythonInteractor):
        payload = encode([interactor.source, test.input, test.answer])
        job = harness_job("interactor", payload, limits, link=link)
        return sandboxes.python(SandboxRole.TESTS, interactor.source), job
    runnable = prepare(sandboxes, Program(interactor.language, interactor.source), role=SandboxRole.TESTS)
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


def _event(interactor: Interactor, result: RunResult, *, saw_end: bool) -> Event:
    if not isinstance(interactor, PythonInteractor):
        python = not language_named(interactor.language, "the interactor").run
        return event_of(interactor.protocol, result, python=python, saw_end=saw_end)
    return callable_event(result, refused="refused by the interactor", saw_end=saw_end)


def _apply_rules(runnable: Runnable, ran: RunResult, event: Event, relay: Relay) -> CaseJudgement | None:
    """Return the judgement by the rules in the module docstring, in order; None if the interactor failed."""
    failed = runnable.failure(ran) if ran.ended is not EndReason.KILLED else None
    if failed is not None and failed.verdict is Verdict.COMPILE_ERROR:
        return failed
    if relay.program_flooded:
        failed = case(ran, Verdict.OUTPUT_LIMIT, "wrote more than allowed")
    if failed is not None and relay.saw_crash:
        return failed
    if not is_decision(event):
        return None
    if event.kind is CheckerEvent.ACCEPTED:
        return failed or case(ran, Verdict.ACCEPTED)
    return case(ran, Verdict.WRONG_ANSWER, event.detail)

"""Judging an ``interactive`` case: program and interactor, each in a sandbox, joined by a relay.

When one has left, the other reads end of file. The verdict, in this order, which does not depend on who was
faster:

1. The program does not compile: COMPILE_ERROR.
2. The program exceeded a limit, or wrote more than it may, and the interactor had not left when it was told
   of the end: that limit. What the interactor made of an end that a limit brought about does not count.
   A wait of both for each other ends so, as TIME_LIMIT; but if the interactor was busy for most of that
   time, it has exhausted itself.
3. The program crashed before the interactor had left: RUNTIME_ERROR.
4. The interactor refused: WRONG_ANSWER, whatever else the program does. It decided upon what the program
   wrote, and the program is not let run on: there is no limit left that could bring another try.
5. The interactor accepted: the program must also end by itself, within its limits, with exit code 0.
6. The interactor failed: as ``responsibility`` says. The evidence that it works is one of the problem's
   references, accepted in this very case.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from whetstone.judge.answers.protocols import callable_event, event_of
from whetstone.judge.answers.responsibility import Blame, Did, Event, decided, settle
from whetstone.judge.boxes import Boxes, Side, harness_job
from whetstone.judge.kinds.relay import Relay, Said
from whetstone.judge.languages.runnable import CompileFailure, Runnable, prepare
from whetstone.judge.languages.table import language_named
from whetstone.judge.outcome import DIFFERS, case, judge_failure, outlasting, run_limits
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
from whetstone.verdict import CaseJudgement, Verdict, storable

_INTERACTOR_CPU_S = 20.0
_INTERACTOR_MEMORY_MB = 2048.0
_INTERACTOR_BYTES = 256 << 20
_UNPROVED = "the interactor failed, and no reference shows that it works"


class _Conversation(NamedTuple):
    """What the program and the interactor did, each."""

    judged: CaseJudgement | None
    """The case's judgement, unless the interactor failed."""
    event: Event
    ran: RunResult | None = None
    said: Said = (0, b"")


def judge_interactive(
    boxes: Boxes,
    problem: Problem,
    tests: InteractiveTests,
    number: int,
    program: Program,
    stopped: dict[int, Any],
) -> CaseJudgement:
    """Let ``program`` talk to the problem's interactor and judge by what that says. Raises SandboxFault.

    It has to begin as in the conversation of this case that a time limit ``stopped``.
    """
    test = tests.cases[number]
    talk = _converse(boxes, problem, tests.interactor, test, program, stopped.get(number))
    if talk.judged is not None:
        if talk.judged.verdict is Verdict.TIME_LIMIT:
            stopped.setdefault(number, talk.said)
        return talk.judged

    def works() -> bool:
        shown = (_converse(boxes, problem, tests.interactor, test, r).judged for r in problem.references)
        return any(judged is not None and judged.verdict is Verdict.ACCEPTED for judged in shown)

    blame, reason = settle("interactor", talk.event, works, _UNPROVED)
    if blame is Blame.JUDGE or talk.ran is None:
        return judge_failure(reason)
    return case(talk.ran, Verdict.WRONG_ANSWER, reason)


def _converse(
    boxes: Boxes,
    problem: Problem,
    interactor: Interactor,
    test: InteractiveCase,
    program: Program,
    expected: Said | None = None,
) -> _Conversation:
    """One conversation."""
    runnable = prepare(boxes, program)
    if isinstance(runnable, CompileFailure):
        judged = CaseJudgement(Verdict.COMPILE_ERROR, reason=storable(runnable.reason))
        return _Conversation(judged, Event(Did.REFUSED))
    limits = problem.limits
    bounds = run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb)
    with Relay(bounds.output_bytes, _INTERACTOR_BYTES, expected) as relay:
        started = _interactor_job(boxes, interactor, test, bounds, relay.interactor_end.fileno())
        if isinstance(started, CompileFailure):
            return _Conversation(None, Event(Did.BROKEN, f"it does not compile: {started.reason}"))
        relay.interactor_end.detach()
        other, ran = _run_both(*started, runnable, bounds, relay, interactor)
        event = _event(interactor, other, told=relay.told)
        if relay.interactor_flooded and event.did is not Did.REFUSED:
            event = Event(Did.FLOODED, "it wrote more than a program can be expected to read")
        if ran.ended is Ended.WALL_LIMIT and other.cpu_s > ran.wall_s / 2 and event.did is not Did.REFUSED:
            event = Event(Did.EXHAUSTED, "it kept the program waiting until the wall clock limit")
            return _Conversation(None, event, ran)
        judged = _judgement(runnable, ran, event, relay)
    if not relay.said_as_expected and (judged is None or judged.verdict is Verdict.ACCEPTED):
        judged = case(ran, Verdict.TIME_LIMIT, DIFFERS)
    return _Conversation(judged, event, ran, relay.said)


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
    sandbox: Sandbox, job: Job, runnable: Runnable, bounds: RunLimits, relay: Relay, interactor: Interactor
) -> tuple[RunResult, RunResult]:
    """Both to their end: (interactor, program). The program goes on only where it was accepted."""
    other = sandbox.start(job)
    try:
        box, program_job = runnable.job(bounds, link=relay.program_end.fileno())
        ran = box.start(program_job)
    except BaseException:
        other.close()
        other.server.kill()
        raise
    relay.program_end.detach()  # the sandbox closed it once the child had it
    relay.started(ran, other)

    def grace(left: RunResult) -> float | None:
        return None if _event(interactor, left, told=relay.told).did is Did.ACCEPTED else 0.0

    results = supervise([other, ran], grace)
    return results[0], results[1]


def _event(interactor: Interactor, result: RunResult, *, told: bool) -> Event:
    if not isinstance(interactor, PythonInteractor):
        python = not language_named(interactor.language, "the interactor").run
        return event_of(interactor.protocol, result, python=python, told=told)
    return callable_event(result, refused="refused by the interactor", told=told)


def _judgement(runnable: Runnable, ran: RunResult, event: Event, relay: Relay) -> CaseJudgement | None:
    """The rules of this module's text, in their order; None where the interactor failed."""
    failed = runnable.failure(ran) if ran.ended is not Ended.KILLED else None
    if failed is not None and failed.verdict is Verdict.COMPILE_ERROR:
        return failed
    if relay.program_flooded:
        failed = case(ran, Verdict.OUTPUT_LIMIT, "wrote more than allowed")
    if failed is not None and relay.told_of_death:
        return failed
    if not decided(event):
        return None
    if event.did is Did.ACCEPTED:
        return failed or case(ran, Verdict.ACCEPTED)
    return case(ran, Verdict.WRONG_ANSWER, event.how)

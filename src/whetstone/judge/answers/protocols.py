"""Read the event of a checker or interactor from its run, in the protocols of published problems.

Sources: testlib 1e4e8a2 (``testlib.h``, the ``*_EXIT_CODE`` macros), the Kattis problem package format (42
accepts, 43 refuses), ScaleBox 4bcfefd (``check_special_judge``: 0 accepts, any other refuses).
"""

from __future__ import annotations

from typing import Literal

from whetstone.judge.answers.responsibility import CheckerEvent, Event
from whetstone.judge.outcome import compile_failure, last_line, signal_name
from whetstone.judge.values import WireError, decode
from whetstone.sandbox import EndReason, RunResult

Protocol = Literal["testlib", "kattis", "scalebox"]

_TRACEBACK = b"Traceback (most recent call last)"
# Python raises these exceptions when memory or stack is exhausted.
_RESOURCE_EXCEPTIONS = ("MemoryError", "RecursionError")
_ACCEPTS = {"testlib": 0, "kattis": 42, "scalebox": 0}
_TESTLIB_REFUSALS = {
    1: "wrong answer",
    2: "presentation error",
    4: "dirt after the answer",
    7: "points, which are not acceptance",
}
_TESTLIB_READ_BEYOND = 8
_ENDED_EARLY = "the program's output ended too early"
_EVENTS_OF_ENDS = {
    EndReason.SIGNALED: CheckerEvent.CRASHED,
    EndReason.KILLED: CheckerEvent.STOPPED,
    EndReason.STARVED: CheckerEvent.STOPPED,
    EndReason.CPU_LIMIT: CheckerEvent.EXHAUSTED,
    EndReason.WALL_LIMIT: CheckerEvent.EXHAUSTED,
    EndReason.MEMORY_LIMIT: CheckerEvent.EXHAUSTED,
    EndReason.PROCESS_LIMIT: CheckerEvent.EXHAUSTED,
    EndReason.OUTPUT_LIMIT: CheckerEvent.FLOODED,
}


def event_of(protocol: Protocol, result: RunResult, *, python: bool, saw_end: bool = False) -> Event:
    """Return the event of a program that decides by its exit code.

    python: the program is written in Python, where exit code 1 also means an uncaught exception.
    saw_end: for an interactor, whether the program's output had ended before it exited.
    """
    if stopped := _event_of_end(result):
        return stopped
    code = result.exit_code
    detail = last_line(result.stderr)
    if code == _ACCEPTS[protocol]:
        return Event(CheckerEvent.ACCEPTED)
    if python and code == 1 and compile_failure(result.result):
        return Event(CheckerEvent.BROKEN, f"it does not compile: {detail}")
    if python and code == 1 and _TRACEBACK in result.stderr:
        return _event_of_exception(detail, saw_end)
    if refusal := _refusal_reason(protocol, code):
        return Event(CheckerEvent.REFUSED, _with_detail(refusal, detail))
    if protocol == "testlib" and code == _TESTLIB_READ_BEYOND:
        return Event(CheckerEvent.READ_BEYOND, _with_detail(_ENDED_EARLY, detail))
    return Event(CheckerEvent.LEFT, _with_detail(f"it ended with exit code {code}", detail))


def callable_event(result: RunResult, *, refused: str, saw_end: bool = False) -> Event:
    """Return the event of a Python callable, as its harness reported it.

    ``refused``: the reason if it returned False.
    """
    if stopped := _event_of_end(result):
        return stopped
    try:
        answer = decode(result.result)
    except WireError:
        answer = None
    match answer:
        case [True]:
            return Event(CheckerEvent.ACCEPTED)
        case [False]:
            return Event(CheckerEvent.REFUSED, refused)
        case ["raised", str() as detail]:
            return _event_of_exception(detail, saw_end)
        case ["no bool", str() as detail]:
            return Event(CheckerEvent.RAISED, detail)
        case ["left", str() as detail]:
            return Event(CheckerEvent.LEFT, detail)
        case ["broken", str() as detail]:
            return Event(CheckerEvent.BROKEN, detail)
        case _:
            return Event(CheckerEvent.LEFT, f"it ended with exit code {result.exit_code} before it decided")


def _event_of_exception(detail: str, saw_end: bool) -> Event:
    """Return the event of an uncaught exception, which is described as ``Type: message``."""
    if saw_end and detail.startswith("EOFError"):
        return Event(CheckerEvent.READ_BEYOND, _ENDED_EARLY)
    return Event(
        CheckerEvent.EXHAUSTED if detail.startswith(_RESOURCE_EXCEPTIONS) else CheckerEvent.RAISED,
        f"it raised {detail}",
    )


def _event_of_end(result: RunResult) -> Event | None:
    """Return the event of a run that a limit or a signal ended; None for one that exited."""
    event = _EVENTS_OF_ENDS.get(result.ended)
    if event is None:
        return None
    cause = signal_name(result.signal) if event is CheckerEvent.CRASHED else result.ended.value
    return Event(event, f"it was ended: {cause}")


def _refusal_reason(protocol: Protocol, code: int | None) -> str | None:
    """Return the reason of an exit code that refuses the output; None for one that is no decision."""
    if protocol == "testlib":
        return _TESTLIB_REFUSALS.get(code or 0)
    return "refused" if protocol == "scalebox" or code == 43 else None


def _with_detail(reason: str, detail: str) -> str:
    return f"{reason}: {detail}" if detail else reason

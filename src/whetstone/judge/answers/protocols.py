"""What a checker or interactor did, read off its run, in the protocols that problems come with.

Sources: testlib 1e4e8a2 (``testlib.h``, the ``*_EXIT_CODE`` macros), the Kattis problem package format
(42 accepts, 43 refuses), ScaleBox 4bcfefd (``check_special_judge``: 0 accepts, any other refuses).
"""

from __future__ import annotations

from typing import Literal

from whetstone.judge.answers.responsibility import Did, Event
from whetstone.judge.outcome import compile_failure, last_line, signal_name
from whetstone.judge.values import WireError, decode
from whetstone.sandbox import Ended, RunResult

Protocol = Literal["testlib", "kattis", "scalebox"]

_TRACEBACK = b"Traceback (most recent call last)"
# Exceptions of an interpreter that ran out of room.
_OUT_OF_ROOM = ("MemoryError", "RecursionError")
_ACCEPTS = {"testlib": 0, "kattis": 42, "scalebox": 0}
_TESTLIB_REFUSALS = {
    1: "wrong answer",
    2: "presentation error",
    4: "dirt after the answer",
    7: "points, which are not acceptance",
}
_TESTLIB_READ_BEYOND = 8
_ENDED_EARLY = "the program's output ended too early"
_ENDS = {
    Ended.SIGNALED: Did.CRASHED,
    Ended.KILLED: Did.BROKEN,  # by us
    Ended.STARVED: Did.BROKEN,
    Ended.CPU_LIMIT: Did.EXHAUSTED,
    Ended.WALL_LIMIT: Did.EXHAUSTED,
    Ended.MEMORY_LIMIT: Did.EXHAUSTED,
    Ended.PROCESS_LIMIT: Did.EXHAUSTED,
    Ended.OUTPUT_LIMIT: Did.FLOODED,
}


def event_of(protocol: Protocol, result: RunResult, *, python: bool, told: bool = False) -> Event:
    """What a program that decides by its exit code did.

    ``python`` says that it is written in Python, where exit code 1 also stands for an uncaught exception;
    ``told``, of an interactor, that the program's output had ended before it left.
    """
    if stopped := _stopped(result):
        return stopped
    code = result.exit_code
    said = last_line(result.stderr)
    if code == _ACCEPTS[protocol]:
        return Event(Did.ACCEPTED)
    if python and code == 1 and compile_failure(result.result):
        return Event(Did.BROKEN, f"it does not compile: {said}")
    if python and code == 1 and _TRACEBACK in result.stderr:
        return _raised(said, told)
    if refusal := _refusal(protocol, code):
        return Event(Did.REFUSED, _with(refusal, said))
    if protocol == "testlib" and code == _TESTLIB_READ_BEYOND:
        return Event(Did.READ_BEYOND, _with(_ENDED_EARLY, said))
    return Event(Did.LEFT, _with(f"it ended with exit code {code}", said))


def callable_event(result: RunResult, *, refused: str, told: bool = False) -> Event:
    """What a Python callable did, as its harness wrote it. ``refused`` is the reason of a plain False."""
    if stopped := _stopped(result):
        return stopped
    try:
        answer = decode(result.result)
    except WireError:
        answer = None
    match answer:
        case [True]:
            return Event(Did.ACCEPTED)
        case [False]:
            return Event(Did.REFUSED, refused)
        case ["raised", str() as said]:
            return _raised(said, told)
        case ["no bool", str() as said]:
            return Event(Did.RAISED, said)
        case ["left", str() as said]:
            return Event(Did.LEFT, said)
        case ["broken", str() as said]:
            return Event(Did.BROKEN, said)
        case _:
            return Event(Did.LEFT, f"it ended with exit code {result.exit_code} before it decided")


def _raised(said: str, told: bool) -> Event:
    """What an uncaught exception means, given as ``Type: message``."""
    if told and said.startswith("EOFError"):
        return Event(Did.READ_BEYOND, _ENDED_EARLY)
    return Event(Did.EXHAUSTED if said.startswith(_OUT_OF_ROOM) else Did.RAISED, f"it raised {said}")


def _stopped(result: RunResult) -> Event | None:
    """The event of a run that did not end by itself."""
    did = _ENDS.get(result.ended)
    if did is None:
        return None
    how = signal_name(result.signal) if did is Did.CRASHED else result.ended.value
    return Event(did, f"it was ended: {how}")


def _refusal(protocol: Protocol, code: int | None) -> str | None:
    """The words for an exit code that refuses; None for one that decides nothing."""
    if protocol == "testlib":
        return _TESTLIB_REFUSALS.get(code or 0)
    return "refused" if protocol == "scalebox" or code == 43 else None


def _with(what: str, said: str) -> str:
    return f"{what}: {said}" if said else what

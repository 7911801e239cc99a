"""What the exit of a checker or interactor says, in the protocols that problems come with.

Sources: testlib 1e4e8a2 (``testlib.h``, the ``*_EXIT_CODE`` macros), the Kattis problem package format
(42 accepts, 43 refuses), ScaleBox 4bcfefd (``check_special_judge``: 0 accepts, any other refuses).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal, NamedTuple

from whetstone.judge.outcome import last_line
from whetstone.judge.values import WireError, decode
from whetstone.sandbox import Ended, RunResult

Protocol = Literal["testlib", "kattis", "scalebox"]

_TRACEBACK = b"Traceback (most recent call last)"
# Exceptions of an interpreter that ran out of room: a crash, not a judgement on what was read.
_NOT_READING = ("MemoryError", "RecursionError")
_ACCEPTS = {"testlib": 0, "kattis": 42, "scalebox": 0}
_TESTLIB_REFUSALS = {
    1: "wrong answer",
    2: "presentation error",
    4: "dirt after the answer",
    7: "points, which are not acceptance",
    8: "unexpected end of the output",
}


class Said(Enum):
    """What came of asking a checker or an interactor."""

    ACCEPTED = auto()
    REFUSED = auto()
    UNREADABLE = auto()
    """It raised an ordinary exception over what the program wrote."""
    FAILED = auto()
    """It crashed, exceeded a limit, or ended as nobody has agreed upon."""


class Decision(NamedTuple):
    """What was said, and why unless it is acceptance."""

    said: Said
    reason: str = ""


def decision_of(who: str, protocol: Protocol, result: RunResult, *, python: bool) -> Decision:
    """The decision that a run's end stands for; ``who`` is "checker" or "interactor".

    ``python`` says that it is written in Python, where exit code 1 also stands for an uncaught exception.
    """
    if result.ended is not Ended.EXITED or result.exit_code is None:
        how = f"signal {result.signal}" if result.ended is Ended.SIGNALED else result.ended.value
        return Decision(Said.FAILED, f"the {who} did not decide: {how}")
    code = result.exit_code
    if code == _ACCEPTS[protocol]:
        return Decision(Said.ACCEPTED)
    said = last_line(result.stderr)
    if python and code == 1 and _TRACEBACK in result.stderr:
        kind = Said.FAILED if said.startswith(_NOT_READING) else Said.UNREADABLE
        return Decision(kind, f"the {who} raised {said}")
    refusal = _refusal(protocol, code)
    if refusal is not None:
        return Decision(Said.REFUSED, f"{refusal}: {said}" if said else refusal)
    return Decision(Said.FAILED, f"the {who} ended with exit code {code}" + (f": {said}" if said else ""))


def python_decision(who: str, result: RunResult, *, refused: str, ended_early: str = "") -> Decision:
    """The decision that the harness of a Python callable wrote; ``who`` is "checker" or "interactor".

    ``refused`` is the reason of a plain False, ``ended_early`` that of a conversation cut short, where
    there is one.
    """
    if result.ended is not Ended.EXITED or result.exit_code != 0:
        return Decision(Said.FAILED, f"the {who} did not decide: {result.ended.value}")
    try:
        answer = decode(result.result)
    except WireError as error:
        return Decision(Said.FAILED, f"the {who} did not decide: {error}")
    match answer:
        case [True]:
            return Decision(Said.ACCEPTED)
        case [False]:
            return Decision(Said.REFUSED, refused)
        case ["ended"] if ended_early:
            return Decision(Said.REFUSED, ended_early)
        case ["raised", str() as reason]:
            return Decision(Said.UNREADABLE, reason)
        case ["broken", str() as reason]:
            return Decision(Said.FAILED, f"the {who} failed: {reason}")
        case _:
            return Decision(Said.FAILED, f"the {who} did not decide")


def _refusal(protocol: Protocol, code: int) -> str | None:
    """The words for an exit code that refuses; None for one that decides nothing."""
    if protocol == "scalebox" or (protocol == "kattis" and code == 43):
        return "refused by the problem's checker"
    return _TESTLIB_REFUSALS.get(code) if protocol == "testlib" else None

"""The table that decides who is at fault for an event of a checker or interactor. It is the same for every
protocol.

``protocols`` derives the event from the run, and ``BLAME`` is the only place that assigns the fault. A
decision of a checker is final. Every other event is a failure. A failure alone is the judge's fault
(JUDGE_ERROR, no verdict).

But suppose the same checker decides on another output of the case: the expected output, or that of a
reference. (An interactor must accept a reference.) Then the program's output caused the failure, and the
program is refused. Otherwise a program could escape its verdict with nonsense, or with a number that the
checker believes.

The machine may have sent a signal, for example when it is out of memory. So after a signal (``UNSURE``) a
checker runs again on the same bytes. An interactor does not, because that would be another attempt for the
program. Limits count the checker's own use, and a checker that exceeded one would only take as long again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple


class CheckerEvent(Enum):
    """The event that ended a checker or an interactor."""

    ACCEPTED = auto()
    REFUSED = auto()
    READ_BEYOND = auto()
    """It read beyond the end of the output and reports it (testlib's 8, an interactor's EOFError)."""
    RAISED = auto()
    """Python code raised an exception, or returned no bool."""
    LEFT = auto()
    """It exited without a decision: ``sys.exit``, ``os._exit``, or an exit code that its protocol lacks."""
    CRASHED = auto()
    """A signal ended it."""
    EXHAUSTED = auto()
    """It ran out of CPU time, wall time, memory, stack or processes."""
    FLOODED = auto()
    """It wrote more than allowed."""
    BROKEN = auto()
    """It does not compile, does not define its function, or failed before it got data."""
    STOPPED = auto()
    """The machine gave it no CPU core, or the judge killed it."""


class Blame(Enum):
    """Who is at fault."""

    NONE = auto()
    """The program is accepted."""
    PROGRAM = auto()
    """The program is refused."""
    JUDGE = auto()
    """There is no verdict: the checker, the interactor or the machine failed."""


class Event(NamedTuple):
    """The event and its details, for the reason of a judgement."""

    kind: CheckerEvent
    detail: str = ""


class BlameDecision(NamedTuple):
    """Who is at fault, and the reason; empty for an accepted program."""

    blame: Blame
    reason: str = ""


# Who is at fault without evidence that the checker works in this case, and with such evidence.
BLAME: Mapping[CheckerEvent, tuple[Blame, Blame]] = {
    CheckerEvent.ACCEPTED: (Blame.NONE, Blame.NONE),
    CheckerEvent.REFUSED: (Blame.PROGRAM, Blame.PROGRAM),
    CheckerEvent.READ_BEYOND: (Blame.PROGRAM, Blame.PROGRAM),
    CheckerEvent.RAISED: (Blame.JUDGE, Blame.PROGRAM),
    CheckerEvent.LEFT: (Blame.JUDGE, Blame.PROGRAM),
    CheckerEvent.CRASHED: (Blame.JUDGE, Blame.PROGRAM),
    CheckerEvent.EXHAUSTED: (Blame.JUDGE, Blame.PROGRAM),
    CheckerEvent.FLOODED: (Blame.JUDGE, Blame.PROGRAM),
    CheckerEvent.BROKEN: (Blame.JUDGE, Blame.JUDGE),
    CheckerEvent.STOPPED: (Blame.JUDGE, Blame.JUDGE),
}

# Events that the machine may have caused.
UNSURE = frozenset({CheckerEvent.CRASHED})


def output_failure_prefix(who: str) -> str:
    """Return the start of the reason for a failure that the program's output caused. Reports count it.

    ``who`` is "checker" or "interactor".
    """
    return f"the {who} failed on the output of the program, and works otherwise: "


def is_decision(event: Event) -> bool:
    """Return whether the event is a decision on the output."""
    alone, proved = BLAME[event.kind]
    return alone is proved is not Blame.JUDGE


def decide_blame(who: str, event: Event, works: Callable[[], bool], unproved: str) -> BlameDecision:
    """Return who is at fault for ``event``.

    who: "checker" or "interactor".
    works: returns whether it decides on another output of this case. Called only if the answer matters.
    unproved: the reason if it does not.
    """
    alone, proved = BLAME[event.kind]
    if event.kind is CheckerEvent.STOPPED:
        return BlameDecision(alone, f"the machine stopped the {who}: {event.detail}")
    if alone is proved:
        return BlameDecision(
            alone, f"the {who} failed: {event.detail}" if alone is Blame.JUDGE else event.detail
        )
    if works():
        return BlameDecision(proved, output_failure_prefix(who) + event.detail)
    return BlameDecision(alone, f"{unproved}: {event.detail}")

"""Who is to blame for what a checker or an interactor did: one table, the same for every protocol.

What it did is read off its run in ``protocols``; what follows from it stands in ``BLAME`` and nowhere else.
To decide is its work, and what it decides stands. Whatever else it does, it fails. A failure alone is the
judge's (JUDGE_ERROR, no verdict). But where the same one decides on another output of the same case (a
checker on the expected output or on a reference's, an interactor with a reference), what the program wrote
made it fail, and that is a refusal. Otherwise a program could escape its verdict with nonsense, or with a
number that the checker believes.

A signal may be the machine's doing, which kills what takes its memory: after one (``UNSURE``), a checker is
asked about the same bytes again. An interactor is not: that would be another try for the program. Limits are
counted in what a checker used itself, and one that met a limit would only take as long again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple


class Did(Enum):
    """What a checker or an interactor did."""

    ACCEPTED = auto()
    REFUSED = auto()
    READ_BEYOND = auto()
    """It looked for more than there was, and says so (testlib's 8, an interactor's EOFError): it refuses."""
    RAISED = auto()
    """An exception of a Python one over what the program wrote; or it returned no bool."""
    LEFT = auto()
    """It ended by itself as its protocol does not know: ``sys.exit``, ``os._exit``, an unknown exit code."""
    CRASHED = auto()
    """A signal ended it."""
    EXHAUSTED = auto()
    """It ran out of CPU time, wall time, memory, stack or processes."""
    FLOODED = auto()
    """It wrote more than it may."""
    BROKEN = auto()
    """It does not compile, defines no such function, fails before it was given anything, or got no core."""


class Blame(Enum):
    """Whose doing it is."""

    NOBODY = auto()
    """The program is accepted."""
    PROGRAM = auto()
    """The program is refused."""
    JUDGE = auto()
    """There is no verdict: the checker, the interactor or the machine failed."""


class Event(NamedTuple):
    """What it did, and how."""

    did: Did
    how: str = ""


class Decision(NamedTuple):
    """Who is to blame, and why unless nobody is."""

    blame: Blame
    reason: str = ""


BLAME: Mapping[Did, tuple[Blame, Blame]] = {
    Did.ACCEPTED: (Blame.NOBODY, Blame.NOBODY),
    Did.REFUSED: (Blame.PROGRAM, Blame.PROGRAM),
    Did.READ_BEYOND: (Blame.PROGRAM, Blame.PROGRAM),
    Did.RAISED: (Blame.JUDGE, Blame.PROGRAM),
    Did.LEFT: (Blame.JUDGE, Blame.PROGRAM),
    Did.CRASHED: (Blame.JUDGE, Blame.PROGRAM),
    Did.EXHAUSTED: (Blame.JUDGE, Blame.PROGRAM),
    Did.FLOODED: (Blame.JUDGE, Blame.PROGRAM),
    Did.BROKEN: (Blame.JUDGE, Blame.JUDGE),
}
"""Without evidence that it works in this case, and with it."""

UNSURE = frozenset({Did.CRASHED})
"""What the machine might have had a part in."""


def failed_over_program(who: str) -> str:
    """How the reason of such a refusal begins, so that a report can count them; "checker" or "interactor"."""
    return f"the {who} failed over what the program wrote, and works otherwise: "


def decided(event: Event) -> bool:
    """Whether it did its work."""
    alone, proved = BLAME[event.did]
    return alone is proved is not Blame.JUDGE


def settle(who: str, event: Event, works: Callable[[], bool], unproved: str) -> Decision:
    """Who is to blame for ``event``; ``who`` is "checker" or "interactor".

    ``works`` is asked only where that matters, whether it decides on another output of this case;
    ``unproved`` says what it means that it does not.
    """
    alone, proved = BLAME[event.did]
    if alone is proved:
        return Decision(alone, f"the {who} failed: {event.how}" if alone is Blame.JUDGE else event.how)
    if works():
        return Decision(proved, failed_over_program(who) + event.how)
    return Decision(alone, f"{unproved}: {event.how}")

"""Who is to blame when what judges dies: nobody at first, and in the end a program that does it every time.

A dead fork-server or worker is a failure of ours, and its program is judged again by a fresh one. But if a
program could bring every one down, it would never meet its verdict. So after each death a harmless program
is judged in the same place by a fresh one, for about as long as the other one lived. ``DEATHS`` deaths with a
harmless program unhurt after each are evidence against the program: it is RUNTIME_ERROR. When the harmless
program dies as well, the machine, the problem or somebody else is at fault: no evidence. Somebody who kills
at random hits all three runs and none of the other three in at most one of 64 cases.

A death is no second guess: whatever was refused before it stands, and is not judged again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from whetstone.problem import Program
from whetstone.sandbox import SandboxFault
from whetstone.verdict import CaseJudgement, Verdict, storable

DEATHS = 3
"""How many deaths, each with a harmless run after it, are a program's own doing."""
FAULTS = 5
"""How many deaths of any kind are enough to give up."""
_LONGEST_PROBE_S = 2.0
_MAX_REASON = 500
_T = TypeVar("_T")


class NotJudged(Exception):
    """Attempt after attempt failed; the message says how. ``verdict`` is who is to blame: RUNTIME_ERROR for
    the program, JUDGE_ERROR for nobody that is known."""

    def __init__(self, reason: str, verdict: Verdict) -> None:
        super().__init__(reason[:_MAX_REASON])
        self.verdict = verdict


def harmless_program(lived_s: float) -> Program:
    """A program that does nothing, for as long as another one lived (two seconds at most)."""
    return Program("python", f"import time\ntime.sleep({min(lived_s, _LONGEST_PROBE_S):.3f})\n")


def despite_faults(
    what: str,
    attempt: Callable[[], _T],
    harmless: Callable[[float], bool],
    faults: type[Exception] | tuple[type[Exception], ...] = SandboxFault,
) -> _T:
    """What ``attempt`` returns, which is tried again when ``what`` dies of it (``faults``).

    ``harmless`` does the same with something harmless for so many seconds, and says whether this says
    anything: not where nothing was run. Raises NotJudged.
    """
    reason, deaths = "", 0
    for _ in range(FAULTS):
        began = time.monotonic()
        try:
            return attempt()
        except faults as fault:
            reason = str(fault)
        try:
            deaths += harmless(time.monotonic() - began)
        except faults as fault:
            reason = str(fault)
        if deaths == DEATHS:
            raise NotJudged(f"brought {what} down {DEATHS} times: {reason}", Verdict.RUNTIME_ERROR)
    raise NotJudged(f"{what} failed: {reason}", Verdict.JUDGE_ERROR)


def judged_despite_faults(attempt: Callable[[Program], CaseJudgement], program: Program) -> CaseJudgement:
    """``attempt(program)``, tried again when a fork-server dies of it."""

    def harmless(lived_s: float) -> bool:
        attempt(harmless_program(lived_s))
        return True

    try:
        return despite_faults("the sandbox", partial(attempt, program), harmless)
    except NotJudged as failure:
        return CaseJudgement(failure.verdict, reason=storable(str(failure)))

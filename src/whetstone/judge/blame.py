"""Who is to blame when a sandbox dies: nobody at first, and in the end a program that does it every time.

A dead fork-server is a failure of ours, and its program is judged again by a fresh one. But if a program
could bring every fork-server down, it would never meet its verdict. So after each death a harmless program
is judged on the same case and on a fresh fork-server, for about as long as the other one lived. ``DEATHS``
deaths with a harmless program unhurt after each are evidence against the program: it is RUNTIME_ERROR.
When the harmless program dies as well, the machine, the problem or somebody else is at fault: no evidence.
Somebody who kills at random hits all three runs and none of the other three in at most one of 64 cases.
A tool that cannot be executed (NotExecuted) is no death at all: no other attempt would find it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from whetstone.judge.outcome import judge_failure
from whetstone.problem import Program
from whetstone.sandbox import SandboxFault
from whetstone.sandbox.execute import NotExecuted
from whetstone.verdict import CaseJudgement, Verdict

DEATHS = 3
"""How many deaths, each with a harmless run after it, are a program's own doing."""
FAULTS = 5
"""How many deaths of any kind are enough to give up."""
_LONGEST_PROBE_S = 2.0


def harmless_program(lived_s: float) -> Program:
    """A program that does nothing, for as long as another one lived (two seconds at most)."""
    return Program("python", f"import time\ntime.sleep({min(lived_s, _LONGEST_PROBE_S):.3f})\n")


def judged_despite_faults(attempt: Callable[[Program], CaseJudgement], program: Program) -> CaseJudgement:
    """``attempt(program)``, tried again when a fork-server dies (SandboxFault) of it.

    A program that brings down every fork-server gets RUNTIME_ERROR; what is not its doing is JUDGE_ERROR.
    """
    reason, deaths = "", 0
    for _ in range(FAULTS):
        began = time.monotonic()
        try:
            return attempt(program)
        except NotExecuted as fault:
            return judge_failure(str(fault))
        except SandboxFault as fault:
            reason = str(fault)
        try:
            attempt(harmless_program(time.monotonic() - began))
            deaths += 1
        except SandboxFault as fault:
            reason = str(fault)
        if deaths == DEATHS:
            reason = f"brought the sandbox down {DEATHS} times: {reason}"
            return CaseJudgement(Verdict.RUNTIME_ERROR, reason=reason[:500])
    return judge_failure(f"the sandbox failed: {reason}")

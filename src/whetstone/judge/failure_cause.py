"""Decides whether the program or the machine caused the death of a fork-server or worker.

The first death is a failure of the judge, and a new process judges the program again. But a program that
could kill every process would never get its verdict. So after each death, a new process judges a harmless
program, which runs for about as long as the other one lived. ``DEATHS`` deaths, each followed by a harmless
program that survives, are evidence against the program: its verdict is RUNTIME_ERROR. If the harmless program
dies too, the cause is the machine, the problem or another process, and there is no evidence.

The probability of a wrong verdict is small: something that kills processes at random hits the three runs and
misses the three harmless ones with a probability of at most 1/64.

A death gives no second attempt: cases that were refused before it stay refused, and are not judged again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from whetstone.core.problem import Program
from whetstone.core.verdict import CaseJudgement, Verdict, storable
from whetstone.sandbox import SandboxFault

# After this many deaths, each with a surviving harmless program, the program is at fault.
DEATHS = 3
# After this many deaths of any kind, the judge gives up.
FAULTS = 5
_LONGEST_PROBE_S = 2.0
_MAX_REASON = 500
_T = TypeVar("_T")


class NotJudged(Exception):
    """All attempts failed; the message says how.

    ``verdict`` is RUNTIME_ERROR if the program is at fault, and JUDGE_ERROR if the cause is unknown.
    """

    def __init__(self, reason: str, verdict: Verdict) -> None:
        super().__init__(reason[:_MAX_REASON])
        self.verdict = verdict


def harmless_program(lived_s: float) -> Program:
    """Return a program that sleeps as long as another one lived, but at most two seconds."""
    return Program("python", f"import time\ntime.sleep({min(lived_s, _LONGEST_PROBE_S):.3f})\n")


class DeathCount:
    """Counts the deaths of what runs a program, such as "the sandbox" (``name``)."""

    def __init__(self, name: str, faults: type[Exception] | tuple[type[Exception], ...]) -> None:
        """``faults``: the exceptions that stand for a death."""
        self._name, self._faults = name, faults
        self._attempts = self._deaths = 0

    def record(self, fault: Exception, harmless: Callable[[], bool]) -> None:
        """Record a death. Raises NotJudged if there is to be no other attempt.

        harmless: makes the same attempt with a harmless program, and returns whether it ran one, so that its
        survival is evidence.
        """
        self._attempts += 1
        try:
            self._deaths += harmless()
        except self._faults as later:
            fault = later
        if self._deaths == DEATHS:
            raise NotJudged(f"ended {self._name} {DEATHS} times: {fault}", Verdict.RUNTIME_ERROR)
        if self._attempts == FAULTS:
            raise NotJudged(f"{self._name} failed: {fault}", Verdict.JUDGE_ERROR)


def despite_faults(name: str, attempt: Callable[[], _T], harmless: Callable[[float], bool]) -> _T:
    """Return the result of ``attempt``, which is repeated if it raises SandboxFault.

    harmless: see ``DeathCount.record``. It gets the seconds for which the attempt lived. Raises NotJudged.
    """
    deaths = DeathCount(name, SandboxFault)
    while True:
        began = time.monotonic()
        try:
            return attempt()
        except SandboxFault as fault:
            deaths.record(fault, partial(harmless, time.monotonic() - began))


def judged_despite_faults(attempt: Callable[[Program], CaseJudgement], program: Program) -> CaseJudgement:
    """Return ``attempt(program)``, which is repeated if the fork-server dies."""

    def harmless(lived_s: float) -> bool:
        attempt(harmless_program(lived_s))
        return True

    try:
        return despite_faults("the sandbox", partial(attempt, program), harmless)
    except NotJudged as failure:
        return CaseJudgement(failure.verdict, reason=storable(str(failure)))

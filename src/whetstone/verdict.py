"""What the judge says: a verdict for each case, and one for the program."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

SHARED_INTERPRETER = "shared_interpreter"
"""Why a judgement that could have been forged is unpaid, and the name under which it is counted."""
MAX_REASON = 500
"""Characters of a case's reason that are kept."""


class Verdict(StrEnum):
    """The nine outcomes. JUDGE_ERROR says that *we* failed: it is never a number."""

    ACCEPTED = "accepted"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    COMPILE_ERROR = "compile_error"
    NO_CODE = "no_code"
    JUDGE_ERROR = "judge_error"


class CaseJudgement(Struct, frozen=True):
    """One case: what happened, what it cost, and a short reason (empty when accepted).

    ``cpu_s`` is user plus system time of the program's processes, ``peak_bytes`` their largest
    resident size; ``index`` is the case's place in the problem; ``shared_interpreter``
    says that test code and program had to share a process. Cases that were not run, because an
    earlier one failed or because they are not in the subset asked for, have no entry. Of a process that
    ran several cases, each has an equal share of the time.
    """

    verdict: Verdict
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_bytes: int = 0
    reason: str = ""
    index: int = 0
    shared_interpreter: bool = False


class Judgement(Struct, frozen=True):
    """The verdict on a program.

    ``score`` in [0, 1] is what the problem's scoring makes of the accepted cases: their share of the cases
    (or of the subset asked for), unless the problem says otherwise; cases that were not run count as
    not accepted. It is None where nothing may be paid: the verdict is JUDGE_ERROR, or could have been forged;
    ``unpaid`` says which. Whoever rewards by the verdict looks whether there is a score first.
    ``isolation`` names the tier that held the program. ``shared_interpreter`` is True when test code had to
    run inside the program's own process, where its verdict can be forged: no score, unless the judge was told
    to give one (``score_shared_interpreter``). ``shared_process`` is True when a case was accepted in a
    process that ran other cases of the program too (``fork_per_case=False``): they may have left something
    for it. That has a score: expected values were out of its reach, and who judges so has asked for it.
    ``environment`` names the packages that Python code could import, with a digest of their versions.
    """

    verdict: Verdict
    cases: list[CaseJudgement]
    score: float | None
    isolation: str
    reason: str = ""
    shared_interpreter: bool = False
    shared_process: bool = False
    environment: str = ""

    def __post_init__(self) -> None:
        if self.verdict is Verdict.JUDGE_ERROR and self.score is not None:
            raise ValueError("a judge that failed gives no score")
        if self.score is None and not self.unpaid:
            raise ValueError("only a judge that failed, or a shared interpreter, leaves no score")
        if self.verdict is Verdict.ACCEPTED and not (
            self.cases and all(c.verdict is Verdict.ACCEPTED for c in self.cases)
        ):
            raise ValueError("ACCEPTED needs at least one case, and every case accepted")

    @property
    def accepted(self) -> bool:
        """True when every test gave positive evidence."""
        return self.verdict is Verdict.ACCEPTED

    @property
    def unpaid(self) -> str:
        """Why there is no score: ``judge_error`` or ``shared_interpreter``; empty where there is one."""
        if self.score is not None:
            return ""
        if self.verdict is Verdict.JUDGE_ERROR:
            return self.verdict.value
        return SHARED_INTERPRETER if self.shared_interpreter else ""


def storable(reason: str) -> str:
    """``reason`` as one short line that any file, page or terminal can hold.

    A program can influence it: lone surrogates, line ends and terminal codes are escaped.
    """
    short = reason[:MAX_REASON]
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)

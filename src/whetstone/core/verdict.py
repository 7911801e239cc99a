"""The results of the judge: a verdict for each case, and one for the program."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

# The reason why a judgement that could have been forged gives no reward, and the name of its counter.
SHARED_INTERPRETER = "shared_interpreter"
# The maximum length of a case's reason in characters.
MAX_REASON = 500
# How the reason of a JUDGE_ERROR begins if the tests caused it. The judge writes the beginning, so no program
# can forge it.
_FAULTS_OF_TESTS = ("the checker ", "the interactor ", "the tests contain ")


class Verdict(StrEnum):
    """The nine results. JUDGE_ERROR means that the judge failed, so there is no score."""

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
    """The result of one case: verdict, costs and a short reason (empty if accepted).

    ``cpu_s`` is user plus system time of the program's processes in seconds, ``peak_bytes`` their largest
    resident size. ``index`` is the position of the case in the problem. ``shared_interpreter`` is True if
    test code and program had to share a process. Cases that were not run have no entry: an earlier one
    failed, or they are not in the chosen subset. If a process ran several cases, each has an equal share of
    its time.
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

    ``score`` in [0, 1] is computed by the problem's scoring. By default it is the share of accepted cases in
    all cases or in the chosen subset. Cases that were not run count as not accepted. It is None if there must
    be no reward: the verdict is JUDGE_ERROR, or it could have been forged; ``unpaid`` says which. A reward
    that uses the verdict must first check that there is a score.

    ``isolation`` is the tier of the sandbox. ``shared_interpreter`` is True if test code had to run in the
    program's own process, where the verdict can be forged. There is then no score, unless the option
    ``score_shared_interpreter`` is set. ``shared_process`` is True if a case was accepted in a process that
    had run other cases of the program (``fork_per_case=False``). These may have left state for it. Such a
    judgement has a score, because the process never had expected values, and the option was chosen.
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
        """Whether every case was accepted."""
        return self.verdict is Verdict.ACCEPTED

    @property
    def unpaid(self) -> str:
        """The reason why there is no score: ``judge_error`` or ``shared_interpreter``; else empty."""
        if self.score is not None:
            return ""
        if self.verdict is Verdict.JUDGE_ERROR:
            return self.verdict.value
        return SHARED_INTERPRETER if self.shared_interpreter else ""


def is_fault_of_tests(judged: CaseJudgement | Judgement) -> bool:
    """Return whether there is no verdict because a checker, an interactor or a value of the tests is
    defective. Otherwise the sandbox or the machine failed."""
    return judged.verdict is Verdict.JUDGE_ERROR and judged.reason.startswith(_FAULTS_OF_TESTS)


def storable(reason: str) -> str:
    """Return ``reason`` as one short line that is safe in files, pages and terminals.

    A program can influence the text, so lone surrogates, line ends and terminal codes are escaped.
    """
    short = reason[:MAX_REASON]
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in short)

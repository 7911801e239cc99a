"""What an exam examines: a judge of Whetstone here or over HTTP, or a function of another project."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import Judgement, Verdict

if TYPE_CHECKING:
    from whetstone.judge import Judge
    from whetstone.service.client import JudgeClient


class Answer(Struct, frozen=True):
    """The answer of a target.

    accepted: None if the target reports that it failed, or gave no answer in time. detail: its own words.
    unsupported: the target has no form for the problem, so the item does not count. seconds: from the request
    to the answer, without waiting for a worker; None if unknown.
    """

    accepted: bool | None
    detail: str = ""
    isolation: str = ""
    unsupported: bool = False
    seconds: float | None = None


class ExamTarget(Protocol):
    """A judge under examination. ``sandboxed``: whether it may get programs that exhaust a machine."""

    name: str
    sandboxed: bool
    protection: str

    def submit(self, problem: Problem, program: Program) -> Future[Answer]:
        """Begin a judgement. The future raises nothing but UserError."""
        ...

    def close(self) -> None:
        """Stop all processes of the target."""
        ...


class JudgeTarget:
    """This judge, or a service of it. A verdict that a program could have forged is no verdict here, because
    it gives no reward."""

    sandboxed = True
    protection = ""

    def __init__(self, name: str, judge: Judge | JudgeClient) -> None:
        self.name = name
        self._judge = judge
        self._waiting = ThreadPoolExecutor(1, "exam")

    def submit(self, problem: Problem, program: Program) -> Future[Answer]:
        """See ExamTarget."""
        return self._waiting.submit(_answer_to, self._submitted(problem, program))

    def _submitted(self, problem: Problem, program: Program) -> Future[Judgement]:
        try:
            return self._judge.submit(problem, program)
        except UserError as error:
            refused: Future[Judgement] = Future()
            refused.set_exception(error)
            return refused

    def close(self) -> None:
        """See ExamTarget."""
        self._waiting.shutdown(cancel_futures=True)
        self._judge.close()


def _answer_to(judgement: Future[Judgement]) -> Answer:
    try:
        return answer_of(judgement.result())
    except UserError as error:
        # Such as a language that the server, or this isolation, does not run.
        return Answer(None, str(error), unsupported=True)


def answer_of(judgement: Judgement) -> Answer:
    """Return the answer that a judgement stands for."""
    detail = judgement.verdict.value + (f": {judgement.reason}" if judgement.reason else "")
    if judgement.score is None and judgement.verdict is not Verdict.JUDGE_ERROR:
        detail += "; no reward, because the program could have forged it"
    accepted = None if judgement.score is None else judgement.accepted
    seconds = sum(case.wall_s for case in judgement.cases)
    return Answer(accepted, detail, judgement.isolation, seconds=seconds)

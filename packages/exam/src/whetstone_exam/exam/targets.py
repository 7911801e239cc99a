"""What an exam examines: a judge of Whetstone here or over HTTP, or a function of another project."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import Judgement, Verdict
from whetstone.judge import Judge
from whetstone_exam.load.footprint import Process, process_tree, temporary_entries

if TYPE_CHECKING:
    from whetstone.service.client import JudgeClient


class Answer(Struct, frozen=True):
    """The answer of a target.

    accepted: None if the target reports that it failed, or gave no answer in time. detail: its own words.
    unsupported: the target has no form for the problem, so the item does not count. withheld: the target
    answered, but gives no reward, because the program could have forged the verdict. seconds: from the
    request to the answer, without waiting for a worker; None if unknown.
    """

    accepted: bool | None
    detail: str = ""
    isolation: str = ""
    unsupported: bool = False
    withheld: bool = False
    seconds: float | None = None


class ExamTarget(Protocol):
    """A judge under examination. ``sandboxed``: whether it may get programs that exhaust a machine."""

    name: str
    sandboxed: bool
    protection: str

    def submit(self, problem: Problem, program: Program) -> Future[Answer]:
        """Begin a judgement. The future raises nothing but UserError."""
        ...

    def processes(self) -> list[Process] | None:
        """Return the present processes of the target, with zombies; None if it may be on another machine."""
        ...

    def temporary_files(self) -> int:
        """Return the present number of the target's temporary files and folders."""
        ...

    def close(self) -> None:
        """Stop all processes of the target."""
        ...


class JudgeTarget:
    """This judge, or a service of it. A verdict that a program could have forged counts as withheld."""

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

    def processes(self) -> list[Process] | None:
        """See ExamTarget. This process is one of them."""
        return process_tree([os.getpid()], zombies=True) if isinstance(self._judge, Judge) else None

    def temporary_files(self) -> int:
        """See ExamTarget."""
        return len(temporary_entries(self.processes() or []))

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
    withheld = judgement.score is None and judgement.verdict is not Verdict.JUDGE_ERROR
    if withheld:
        detail += "; no reward, because the program could have forged it"
    accepted = None if judgement.score is None else judgement.accepted
    seconds = sum(case.wall_s for case in judgement.cases)
    return Answer(accepted, detail, judgement.isolation, withheld=withheld, seconds=seconds)


class _OwnJudge:
    """This judge as a function, for sections of the exam that harm the process in which a judge runs.

    It has one worker, which starts with the first program. ``tier``: None for the strongest.
    """

    def __init__(self, tier: str | None) -> None:
        self._tier = tier

    @cached_property
    def _judge(self) -> Judge:
        return Judge(1, tier=self._tier)

    def __call__(self, problem: Problem, program: Program) -> bool:
        """Return whether the program is accepted. Raises RuntimeError if there is no reward."""
        answer = answer_of(self._judge.judge(problem, program))
        if answer.accepted is None:
            raise RuntimeError(answer.detail)
        return answer.accepted


strongest = _OwnJudge(None)
root = _OwnJudge("root")
userns = _OwnJudge("userns")
restricted = _OwnJudge("restricted")

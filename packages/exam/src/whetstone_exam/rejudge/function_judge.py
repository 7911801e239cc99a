"""A judge of another project, as ``module:function``, in the place of this one."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone_exam.exam.callable_target import CallableTarget
from whetstone_exam.exam.targets import Answer


class FunctionJudge:
    """Judges with a function; see ``CallableTarget`` for its processes and their protection.

    A program is accepted or a wrong answer. If the function fails, or has no form for the problem, the
    verdict is JUDGE_ERROR. Options of a judgement have no effect.
    """

    minimum_tier = ""

    def __init__(self, target: CallableTarget) -> None:
        self._target = target

    def submit(self, problem: Problem, program: Program, **options: Any) -> Future[Judgement]:
        """Begin a judgement."""
        judged: Future[Judgement] = Future()

        def answered(answer: Future[Answer]) -> None:
            if judged.set_running_or_notify_cancel():
                judged.set_result(_judgement(answer.result()))

        self._target.submit(problem, program).add_done_callback(answered)
        return judged

    def worker_pids(self) -> list[int]:
        """Return the ids of the processes of the function."""
        return [pid for pid, _ in self._target.processes() or []]

    def close(self) -> None:
        """Stop all processes."""
        self._target.close()


def _judgement(answer: Answer) -> Judgement:
    if answer.accepted is None:
        verdict, score = Verdict.JUDGE_ERROR, None
    elif answer.accepted:
        verdict, score = Verdict.ACCEPTED, 1.0
    else:
        verdict, score = Verdict.WRONG_ANSWER, 0.0
    case = CaseJudgement(verdict, 0.0, answer.seconds or 0.0, 0, answer.detail)
    return Judgement(verdict, [case], score, "", answer.detail)

"""This judge as a function, for sections of the exam that harm the process in which a judge runs."""

from __future__ import annotations

from functools import cached_property

from whetstone.core.problem import Problem, Program
from whetstone.judge import Judge
from whetstone_exam.exam.targets import answer_of


class _OwnJudge:
    """A judge with one worker, which starts with the first program. ``tier``: None for the strongest."""

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

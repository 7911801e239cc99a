"""Run the cases of a Python program one after the other in one process: cheaper than forks, but less strict.

A fork for each case is the default. Without it (``JudgeOptions.fork_per_case``), all cases run first in one
process. Each case has globals, streams and arguments of its own. All cases together have the limits of *one*
case. A program that stays within them does so in each case, so no measurement of the process has to be
trusted. Each case returns the same data as in a run of its own, output or a value. It is compared in the
judge, so the process has no access to expected values.

The first answer that is compared decides a case, whether it is accepted or wrong. A run without an answer (a
limit, a crash, a malformed message) shows nothing, because an earlier case may be the cause. Such a case runs
again in a fork of its own. If it is accepted there, sharing changes the behaviour of the program. Then no
acceptance of the shared process counts, and each of these cases is judged again in a fork of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from whetstone.core.problem import CallTests, Problem, Program, StdinTests
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.judge.kinds.call import judge_calls
from whetstone.judge.kinds.stdin import judge_python_sequence
from whetstone.judge.sandboxes import SandboxSet
from whetstone.sandbox import SandboxFault

_ANSWERED = frozenset({Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.JUDGE_ERROR})


@dataclass(frozen=True)
class SharedProcess:
    """The judgements on cases that ran in shared processes, by the number of the case.

    answered: cases whose output or value was compared, and cases in which the checker failed.
    failed: cases without an answer (a limit, a crash). A process of their own decides them.
    """

    answered: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])
    failed: set[int] = field(default_factory=set[int])

    @property
    def accepted(self) -> dict[int, CaseJudgement]:
        """Return the accepted cases."""
        return {n: judged for n, judged in self.answered.items() if judged.verdict is Verdict.ACCEPTED}

    @property
    def wrong(self) -> dict[int, CaseJudgement]:
        """Return the answered cases that were not accepted."""
        return {n: judged for n, judged in self.answered.items() if judged.verdict is not Verdict.ACCEPTED}


def judge_in_sequence(
    sandboxes: SandboxSet,
    problem: Problem,
    chosen: Sequence[int],
    program: Program,
    progress: Callable[[], None],
) -> SharedProcess:
    """Run the ``chosen`` cases in shared processes, as far as possible; ``progress`` is called after each.

    A failure here, also of the sandbox, has no consequence: the cases are judged alone. The cost of a case is
    an equal share of the time of its process, and all of its memory.
    """
    outcome = SharedProcess()
    rest = list(chosen)
    while len(rest) > 1:
        reached: list[CaseJudgement | None] = []
        try:
            for judged in _judge_reached(sandboxes, problem, rest, program.source):
                reached.append(judged)
                progress()
        except SandboxFault:
            break
        for number, judged in zip(rest, reached, strict=False):
            if judged is None:
                continue
            if judged.verdict in _ANSWERED:
                share = len(reached)
                outcome.answered[number] = replace(
                    judged, cpu_s=judged.cpu_s / share, wall_s=judged.wall_s / share, index=number
                )
            else:
                outcome.failed.add(number)
        # The program ends its process in the first case, so a shared process saves nothing.
        if len(reached) < 2:
            break
        rest = rest[len(reached) :]
    return outcome


def _judge_reached(
    sandboxes: SandboxSet, problem: Problem, numbers: list[int], source: str
) -> Iterable[CaseJudgement | None]:
    """Run one process over these cases. Return judgements on those that it reached, in order.

    None stands for an undecided case. Raises SandboxFault.
    """
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return judge_python_sequence(sandboxes, problem, [tests.cases[n] for n in numbers], source)
    if isinstance(tests, CallTests):
        return judge_calls(sandboxes, problem, tests, [tests.cases[n] for n in numbers], source)
    return []

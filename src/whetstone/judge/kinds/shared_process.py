"""Run cases of a Python program one after the other in one process: cheaper than a process for each.

The asserts of a list always run so, as in plain Python: in order, with one import of the program. For other
cases a fork for each is the default. Without it (``JudgeOptions.fork_per_case``), all cases run first in one
process. Each case has globals, streams and arguments of its own. All cases together have the limits of *one*
case. A program that stays within them does so in each case, so no measurement of the process has to be
trusted. Each case returns the same data as in a run of its own, output or a value. It is compared in the
judge, so the process has no access to expected values.

The first answer that is compared decides a case, whether it is accepted or wrong. A run without an answer (a
limit, a crash, a malformed message) shows nothing, because an earlier case may be the cause. Such a case runs
again in a fork of its own. If it is accepted there, sharing changes the behaviour of the program. Then no
acceptance of the shared process counts, and each of these cases is judged again in a fork of its own.

Recorded outcomes of asserts are final. So is a crash or a limit other than time in the assert in which it
happened. The asserts after it get a newly imported program. An assert has no judgement if nothing is known
about it, and is then judged alone. This is so if the sandbox died, or if a time limit stopped the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whetstone.core.problem import AssertTests, CallTests, Problem, StdinTests
from whetstone.core.verdict import CaseJudgement, Verdict
from whetstone.judge.kinds.call import judge_calls
from whetstone.judge.kinds.stdin import judge_python_sequence
from whetstone.judge.outcome import is_stopped
from whetstone.judge.sandboxes import SandboxSet
from whetstone.sandbox import SandboxFault

if TYPE_CHECKING:
    from whetstone.judge.kinds.assert_processes import FirstAnswers

_ANSWERED = frozenset({Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.JUDGE_ERROR})


@dataclass(frozen=True)
class SharedProcess:
    """The judgements on cases that ran in shared processes, by the number of the case.

    final: asserts with an outcome, and other cases that were answered but not accepted.
    accepted: other cases that were accepted, which counts unless sharing changes the program's behaviour.
    failed: other cases without an answer (a limit, a crash). A process of their own decides them.
    stopped: asserts that a time limit stopped. Their first run has been used.
    """

    final: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])
    accepted: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])
    failed: set[int] = field(default_factory=set[int])
    stopped: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])

    def record(self, number: int, judged: CaseJudgement, share: int) -> None:
        """Record a case whose process reached ``share`` cases: an equal share of its time is the case's
        cost, and all of its memory."""
        judged = replace(judged, cpu_s=judged.cpu_s / share, wall_s=judged.wall_s / share, index=number)
        if judged.verdict not in _ANSWERED:
            self.failed.add(number)
        elif judged.verdict is Verdict.ACCEPTED:
            self.accepted[number] = judged
        else:
            self.final[number] = judged

    def record_assert(
        self, number: int, judged: CaseJudgement, share: int, first: bool, first_answers: FirstAnswers
    ) -> None:
        """Record the judgement on an assert, which is the ``first`` of its process or not."""
        if not is_stopped(judged):
            cost = {"cpu_s": judged.cpu_s / share, "wall_s": judged.wall_s / share}
            self.final[number] = replace(judged, **cost, index=number)
        # The limit of one assert holds for all together, so only the first one has exceeded it. If the test
        # process itself was busy, the program's messages are unknown, and a second run could not be compared.
        elif first or first_answers[number] is None:
            self.stopped[number] = replace(judged, index=number)


def judge_in_shared_processes(
    sandboxes: SandboxSet,
    problem: Problem,
    numbers: Sequence[int],
    source: str,
    progress: Callable[[], None],
    first_answers: FirstAnswers,
) -> SharedProcess:
    """Run these cases in shared processes, as far as possible; ``progress`` is called after each.

    A failure here, also of the sandbox, has no consequence: the other cases are judged alone.
    ``first_answers`` gets the digest of the program's messages in an assert that a time limit stopped.
    """
    outcome = SharedProcess()
    rest = list(numbers)
    is_over = False
    while len(rest) > 1 and not is_over:
        reached: list[CaseJudgement | None] = []
        try:
            for judged in _judge_reached(sandboxes, problem, rest, source, first_answers):
                reached.append(judged)
                progress()
        except SandboxFault:
            is_over = True
        for number, judged in zip(rest, reached, strict=False):
            if judged is None:
                continue
            if isinstance(problem.tests, AssertTests):
                outcome.record_assert(number, judged, len(reached), number == rest[0], first_answers)
                is_over |= is_stopped(judged)
            else:
                outcome.record(number, judged, len(reached))
        # A program that ends its process in the first case gains nothing from a shared one.
        is_over |= len(reached) < 2
        rest = rest[len(reached) :]
    return outcome


def _judge_reached(
    sandboxes: SandboxSet, problem: Problem, numbers: list[int], source: str, first_answers: FirstAnswers
) -> Iterable[CaseJudgement | None]:
    """Run one process over these cases. Return judgements on those that it reached, in order.

    None stands for an undecided case. Raises SandboxFault.
    """
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return judge_python_sequence(sandboxes, problem, [tests.cases[n] for n in numbers], source)
    if isinstance(tests, CallTests):
        return judge_calls(sandboxes, problem, tests, [tests.cases[n] for n in numbers], source)
    if isinstance(tests, AssertTests):
        # Imported here for the same reason as in ``judging``.
        from whetstone.judge.kinds.asserts import judge_assert_list

        return judge_assert_list(sandboxes, problem, tests, numbers, source, first_answers)
    return []

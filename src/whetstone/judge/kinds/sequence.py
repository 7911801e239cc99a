"""Cases of a Python program in turn in one process: cheaper than a fork for each, and less strict.

A fork per case is the rule. Without it (``JudgeOptions.fork_per_case``), all cases are first run in one
process, each with globals, streams and arguments of its own, and all of them together within the limits of
*one* case: whatever meets them in sum meets them case by case, so nothing that the process says of time or
memory need be believed. What comes out for each case is what a run of its own gives, output or a value, and
is compared in the same place: expected values are as far away as ever.

Only acceptances come from here. What was not accepted, and what a limit, a crash or an odd answer left
open, is judged in a fork of its own, and that verdict counts. When such a fork accepts what the shared
process had refused, the program is one whose runs differ, by chance or by what they leave for each other:
then no acceptance of the shared process counts, and every case is judged in a fork of its own. Otherwise a
program that guesses would have two guesses for every case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from whetstone.judge.boxes import Boxes
from whetstone.judge.kinds.call import judge_calls
from whetstone.judge.kinds.stdin import judge_python_sequence
from whetstone.problem import CallTests, Problem, Program, StdinTests
from whetstone.sandbox import SandboxFault
from whetstone.verdict import CaseJudgement, Verdict


@dataclass(frozen=True)
class SharedProcess:
    """What came of the cases in shared processes, by number: ``accepted``, and ``refused`` ones."""

    accepted: dict[int, CaseJudgement] = field(default_factory=dict[int, CaseJudgement])
    refused: set[int] = field(default_factory=set[int])


def judge_in_sequence(
    boxes: Boxes, problem: Problem, chosen: Sequence[int], program: Program, progress: Callable[[], None]
) -> SharedProcess:
    """Run the ``chosen`` cases in shared processes, as far as that goes; ``progress`` is called after each.

    What fails here, the sandbox included, fails without consequence. An accepted case's cost is an equal
    share of its process's time, and all of its memory.
    """
    found = SharedProcess()
    rest = list(chosen)
    while len(rest) > 1:
        reached: list[CaseJudgement | None] = []
        try:
            for judged in _reached(boxes, problem, rest, program.source):
                reached.append(judged)
                progress()
        except SandboxFault:
            break
        for number, judged in zip(rest, reached, strict=False):
            if judged is None:
                continue
            if judged.verdict is Verdict.ACCEPTED:
                share = len(reached)
                found.accepted[number] = replace(
                    judged, cpu_s=judged.cpu_s / share, wall_s=judged.wall_s / share, index=number
                )
            else:
                found.refused.add(number)
        if len(reached) < 2:
            break  # it ends its process: a shared one gains nothing
        rest = rest[len(reached) :]
    return found


def _reached(
    boxes: Boxes, problem: Problem, numbers: list[int], source: str
) -> Iterable[CaseJudgement | None]:
    """One process over these cases: judgements on those that it came to, in order, None for one left open.

    Raises SandboxFault.
    """
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return judge_python_sequence(boxes, problem, [tests.cases[n] for n in numbers], source)
    if isinstance(tests, CallTests):
        return judge_calls(boxes, problem, tests, [tests.cases[n] for n in numbers], source)
    return []

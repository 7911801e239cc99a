"""From a problem and a program to a judgement, in one process: cases, retries, and the final verdict.

The rules:

- Every case of a problem must be accepted for the program to be. The program's verdict is that of the
  first case that was not.
- A case that could not be judged makes the whole program JUDGE_ERROR, without a score:
  a share of the cases would be a guess. With ``stop_at_first_failure`` the score is all or nothing, so a case
  that definitely failed before it settles the matter.
- A time limit counts when it was hit twice: the better of the two runs stands.
- A program that waited twice until the wall clock limit is not run further: its remaining cases have
  no entry, and count as not accepted.
- A program during whose runs the sandbox dies is judged again; what brings down sandbox after sandbox,
  where a harmless program does not, is RUNTIME_ERROR (see ``blame``).
- The asserts of a list are run as plain Python runs them, in turn against the program imported once; see
  ``asserts.judge_assert_list`` for those that are judged by themselves.
- Without ``fork_per_case`` what runs the cases of a Python program first is one process: see ``sequence``.
- With ``max_cases`` only a seeded subset of the cases is judged, the same for every program; all that is
  said of "every case" then means the subset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from whetstone.judge.blame import judged_despite_faults
from whetstone.judge.boxes import Boxes
from whetstone.judge.kinds.asserts import judge_assert, judge_assert_list
from whetstone.judge.kinds.call import judge_call
from whetstone.judge.kinds.interactive import judge_interactive
from whetstone.judge.kinds.sequence import SharedProcess, judge_in_sequence
from whetstone.judge.kinds.stdin import judge_stdin
from whetstone.judge.languages.table import language_named
from whetstone.judge.scoring import score
from whetstone.judge.subset import chosen_cases
from whetstone.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    Problem,
    Program,
    Scoring,
    StdinTests,
    case_count,
)
from whetstone.verdict import CaseJudgement, Judgement, Verdict

MAX_SOURCE_CHARACTERS = 8 << 20
"""A longer program counts as one that does not compile: what carries it has limits of its own."""


class JudgeOptions(Struct, frozen=True):
    """How a judge goes about its work.

    ``stop_at_first_failure``: run no case after one that failed. ``confirm_time_limit``: run a case
    that hit a time limit once more before it counts. ``max_cases`` and ``subset_seed``: run only so many
    cases (None: all), which are chosen by the seed and the problem's id alone. ``fork_per_case``: give every
    case a process of its own; otherwise see ``sequence``.
    """

    stop_at_first_failure: bool = False
    confirm_time_limit: bool = True
    max_cases: int | None = None
    subset_seed: int = 0
    fork_per_case: bool = True


def judge_program(
    boxes: Boxes,
    problem: Problem,
    program: Program,
    options: JudgeOptions,
    progress: Callable[[], None] = lambda: None,
) -> Judgement:
    """Judge ``program``; ``progress`` is called after every run of a case."""
    isolation = boxes.tier.label
    if not program.source.strip():
        return Judgement(Verdict.NO_CODE, [], 0.0, isolation, "there is no program")
    chosen = chosen_cases(problem.id, case_count(problem), options.max_cases, options.subset_seed)
    shared, settled = SharedProcess(), dict[int, CaseJudgement]()
    if _is_python(program) and not _too_long(program):
        if isinstance(problem.tests, AssertTests):
            settled = judge_assert_list(boxes, problem, problem.tests, chosen, program.source, progress)
        elif not options.fork_per_case:
            shared = judge_in_sequence(boxes, problem, chosen, program, progress)

    @cache
    def alone(number: int) -> tuple[CaseJudgement, bool]:
        if number in settled:
            return settled[number], False
        judged, stalled = _judge_case(boxes, problem, number, program, options, progress)
        return msgspec.structs.replace(judged, index=number), stalled

    early = shared.accepted
    cases = _in_order(chosen, early, alone, options)
    if any(c.verdict is Verdict.ACCEPTED and c.index in shared.refused for c in cases):
        early = {}
        cases = _in_order(chosen, early, alone, options)
    judgement = conclude(cases, chosen, problem.scoring, isolation, options)
    return msgspec.structs.replace(judgement, shared_process=any(c.index in early for c in cases))


def _in_order(
    chosen: Sequence[int],
    early: Mapping[int, CaseJudgement],
    alone: Callable[[int], tuple[CaseJudgement, bool]],
    options: JudgeOptions,
) -> list[CaseJudgement]:
    """The judgements on the cases: the ``early`` ones, the others ``alone``, as far as they are needed."""
    cases: list[CaseJudgement] = []
    for number in chosen:
        judged, stalled = (early[number], False) if number in early else alone(number)
        cases.append(judged)
        failed = judged.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)
        # What does not compile for one case compiles for none.
        if stalled or judged.verdict is Verdict.COMPILE_ERROR or (failed and options.stop_at_first_failure):
            break
    return cases


def _is_python(program: Program) -> bool:
    return not language_named(program.language, "the program").run


def _too_long(program: Program) -> bool:
    return len(program.source) > MAX_SOURCE_CHARACTERS


def conclude(
    cases: list[CaseJudgement],
    chosen: Sequence[int],
    scoring: Scoring,
    isolation: str,
    options: JudgeOptions,
) -> Judgement:
    """The judgement on a program from those on its cases, of which the ``chosen`` were to be run."""
    shared = any(c.shared_interpreter for c in cases)
    first = next((c for c in cases if c.verdict is not Verdict.ACCEPTED), None)
    if first is None and len(cases) == len(chosen):
        return Judgement(Verdict.ACCEPTED, cases, 1.0, isolation, shared_interpreter=shared)
    unjudged = next((c for c in cases if c.verdict is Verdict.JUDGE_ERROR), None)
    settled = next((c for c in cases if c.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)), None)
    if first is None or (unjudged is not None and not (options.stop_at_first_failure and settled)):
        reason = unjudged.reason if unjudged else f"{len(cases)} of {len(chosen)} cases were judged"
        return Judgement(Verdict.JUDGE_ERROR, cases, None, isolation, reason, shared)
    deciding = settled if unjudged is not None and settled is not None else first
    accepted = [c.index for c in cases if c.verdict is Verdict.ACCEPTED]
    earned = score(scoring, chosen, accepted)
    return Judgement(deciding.verdict, cases, earned, isolation, deciding.reason, shared)


def _judge_case(
    boxes: Boxes,
    problem: Problem,
    number: int,
    program: Program,
    options: JudgeOptions,
    progress: Callable[[], None],
) -> tuple[CaseJudgement, bool]:
    """The case's judgement, and whether the program slept through its wall clock limit twice."""
    if _too_long(program):
        return CaseJudgement(Verdict.COMPILE_ERROR, reason="the program's text is too long"), False

    def attempt(program: Program) -> CaseJudgement:
        judged = _attempt(boxes, problem, number, program, progress)
        if judged.verdict is Verdict.JUDGE_ERROR:  # a checker or test code that failed
            judged = _attempt(boxes, problem, number, program, progress)
        return judged

    judged = judged_despite_faults(attempt, program)
    if judged.verdict is not Verdict.TIME_LIMIT or not options.confirm_time_limit:
        return judged, False
    again = judged_despite_faults(attempt, program)
    stalled = judged.cpu_s < problem.limits.cpu_s and again.cpu_s < problem.limits.cpu_s
    return again, stalled and again.verdict is Verdict.TIME_LIMIT


def _attempt(
    boxes: Boxes, problem: Problem, number: int, program: Program, progress: Callable[[], None]
) -> CaseJudgement:
    """One run of a case. Raises SandboxFault."""
    tests, source = problem.tests, program.source
    try:
        if isinstance(tests, StdinTests):
            return judge_stdin(boxes, problem, tests.cases[number], program)
        if isinstance(tests, CallTests):
            return judge_call(boxes, problem, tests, tests.cases[number], source)
        if isinstance(tests, InteractiveTests):
            return judge_interactive(boxes, problem, tests, tests.cases[number], program)
        return judge_assert(boxes, problem, tests, number, source)
    finally:
        progress()

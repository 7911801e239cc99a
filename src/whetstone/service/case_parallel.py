"""Split the cases of one program over idle workers. The judgement is the same, and sooner.

Each part is judged as its own problem, and the judge's rule combines all cases. One worker would stop after a
failure, or after a second wait until the wall clock limit. Later parts then do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.problem import CallTests, Problem, Program, Scoring, StdinTests, case_count
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.judge.judging import conclude
from whetstone.judge.languages.table import language_named
from whetstone.judge.options import JudgeOptions, options_with

# The fewest cases of a part, so that the cost of another worker (a message and compiling) is small.
FEWEST_CASES = 8


def most_parts(problem: Problem, program: Program | None, options: dict[str, Any]) -> int:
    """Return the most workers over which the cases of a program may be spread; 1 to keep them together."""
    apart = isinstance(problem.tests, StdinTests | CallTests) and options.get("max_cases") is None
    if not apart or program is None:
        return 1
    try:
        compiled = language_named(program.language, "the program").run
    except UserError:
        # The judge reports the unknown language.
        return 1
    # A compiled program is compiled once and run on all cases, so only Python is spread.
    return 1 if compiled else max(case_count(problem) // FEWEST_CASES, 1)


def parts_of(problem: Problem, count: int) -> list[Problem]:
    """Split ``problem`` into ``count`` parts of consecutive cases, of about equal size."""
    total = case_count(problem)
    bounds = [total * number // count for number in range(count + 1)]
    return [slice_cases(problem, *ends) for ends in pairwise(bounds)]


def slice_cases(problem: Problem, start: int, end: int) -> Problem:
    """Return the problem with the cases from ``start`` to ``end``, all of equal weight."""
    tests = problem.tests
    if not isinstance(tests, StdinTests | CallTests) or (start == 0 and end >= len(tests.cases)):
        return problem
    part: StdinTests | CallTests = msgspec.structs.replace(tests, cases=tests.cases[start:end])  # type: ignore
    return msgspec.structs.replace(problem, tests=part, scoring=Scoring())


def goes_on(part: Problem, judged: Judgement, *, stop_at_first_failure: bool) -> bool:
    """Return whether one worker would have run the program on the cases after this part."""
    if len(judged.cases) < case_count(part):
        return False
    failed = any(case.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR) for case in judged.cases)
    last = judged.cases[-1]
    # It waited until the limit of the wall clock, also when that was confirmed.
    waited = last.verdict is Verdict.TIME_LIMIT and last.cpu_s < part.limits.cpu_s
    return not (failed and stop_at_first_failure) and not waited


def joined(
    problem: Problem, parts: Sequence[Problem], judged: Sequence[Judgement], options: dict[str, Any]
) -> Judgement:
    """Combine the judgements of the parts, in their order, to one of all cases."""
    judge_options = options_with(JudgeOptions(), options)
    cases: list[CaseJudgement] = []
    missing: list[int] = []
    start, why = 0, ""
    for part, each in zip(parts, judged, strict=False):
        # A part that could not be judged does not hide failures in the other parts.
        if each.verdict is Verdict.JUDGE_ERROR and not each.cases:
            missing += range(start, start + case_count(part))
            why = each.reason
        # A verdict without cases, such as `no_code`, is of the whole program.
        elif not each.cases:
            return msgspec.structs.replace(each, cases=cases)
        cases += [msgspec.structs.replace(case, index=case.index + start) for case in each.cases]
        start += case_count(part)
    first = judged[0]
    every = range(case_count(problem))
    whole = conclude(cases, every, problem.scoring, first.isolation, judge_options, missing, why)
    return msgspec.structs.replace(
        whole,
        shared_process=any(each.shared_process for each in judged),
        environment=first.environment,
    )

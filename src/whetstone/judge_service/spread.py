"""The cases of one program over workers that are idle: the same judgement, sooner.

Each part is judged as a problem of its own, and the judge's own rule makes one judgement of all their cases.
Where a program would not have been run further, after a failure or a second wait until the wall clock limit,
what later parts found does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from whetstone.errors import UserError
from whetstone.judge.judging import conclude
from whetstone.judge.languages.table import language_named
from whetstone.judge.options import JudgeOptions, options_with
from whetstone.problem import CallTests, Problem, Program, Scoring, StdinTests, case_count
from whetstone.verdict import CaseJudgement, Judgement, Verdict

FEWEST_CASES = 8
"""Of a part: what another worker costs (a message, and compiling once more) is little beside so many."""


def most_parts(problem: Problem, program: Program | None, options: dict[str, Any]) -> int:
    """Over how many workers a program's cases may be spread; 1 where they had better stay together.

    What a compiler makes is made once, so only Python is spread.
    """
    apart = isinstance(problem.tests, StdinTests | CallTests) and options.get("max_cases") is None
    if not apart or program is None:
        return 1
    try:
        compiled = language_named(program.language, "the program").run
    except UserError:  # which the judge will say
        return 1
    return 1 if compiled else max(case_count(problem) // FEWEST_CASES, 1)


def parts_of(problem: Problem, count: int) -> list[Problem]:
    """``problem`` in ``count`` parts of consecutive cases, as equal as they can be."""
    total = case_count(problem)
    bounds = [total * number // count for number in range(count + 1)]
    return [piece(problem, *ends) for ends in pairwise(bounds)]


def piece(problem: Problem, start: int, end: int) -> Problem:
    """The problem with only these cases, each worth the same."""
    tests = problem.tests
    if not isinstance(tests, StdinTests | CallTests) or (start == 0 and end >= len(tests.cases)):
        return problem
    part: StdinTests | CallTests = msgspec.structs.replace(tests, cases=tests.cases[start:end])  # type: ignore
    return msgspec.structs.replace(problem, tests=part, scoring=Scoring())


def goes_on(part: Problem, judged: Judgement, *, stop_at_first_failure: bool) -> bool:
    """Whether a program would have been run on the cases behind this part."""
    if len(judged.cases) < case_count(part):
        return False
    failed = any(case.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR) for case in judged.cases)
    return not (failed and stop_at_first_failure) and not _slept(judged.cases[-1], part)


def _slept(case: CaseJudgement, part: Problem) -> bool:
    """It waited until the wall clock limit, and again when that was confirmed."""
    return case.verdict is Verdict.TIME_LIMIT and case.cpu_s < part.limits.cpu_s


def joined(
    problem: Problem, parts: Sequence[Problem], judged: Sequence[Judgement], options: dict[str, Any]
) -> Judgement:
    """The judgement on all cases, from those on as many parts as were needed, in their order."""
    wanted = options_with(JudgeOptions(), options)
    cases: list[CaseJudgement] = []
    missing: list[int] = []
    start, why = 0, ""
    for part, each in zip(parts, judged, strict=False):
        if each.verdict is Verdict.JUDGE_ERROR and not each.cases:  # failures in the other parts count
            missing += range(start, start + case_count(part))
            why = each.reason
        elif not each.cases:  # nothing was judged at all, and the verdict says why
            return msgspec.structs.replace(each, cases=cases)
        cases += [msgspec.structs.replace(case, index=case.index + start) for case in each.cases]
        start += case_count(part)
    first = judged[0]
    every = range(case_count(problem))
    whole = conclude(cases, every, problem.scoring, first.isolation, wanted, missing, why)
    return msgspec.structs.replace(
        whole,
        shared_process=any(each.shared_process for each in judged),
        environment=first.environment,
    )

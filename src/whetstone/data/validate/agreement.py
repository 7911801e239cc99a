"""The comparison of returned values under which the references of a problem agree with its tests."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from whetstone.core.problem import CallTests, Compare, Problem
from whetstone.data.validate.comparing import comparison_text, leaves
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import DefectFlag
from whetstone.data.validate.references import ReferenceTrial, Standing, reference_flags, try_references
from whetstone.data.validate.runs import Runs

# The error that LeetCode allows.
_ERROR = 1e-5


def agreed_comparison(
    problem: Problem, tried: list[ReferenceTrial], runs: Runs, policy: Policy
) -> tuple[Problem, list[ReferenceTrial], DefectFlag] | None:
    """Return the problem with the first looser comparison that all references pass, and their new trials.

    It is tried if the references show that several answers are right, or if the statement allows any order
    and a reference fails. None without such a comparison.
    """
    tests, failed = problem.tests, [one for one in tried if one.standing is Standing.FAILED]
    if not isinstance(tests, CallTests) or problem.checker is not None or not failed:
        return None
    several = any(flag.reason == "several_answers" for flag in reference_flags(problem, tried))
    if not (several or problem.compare.order):
        return None
    for compare in _looser(problem.compare, tests):
        changed = msgspec.structs.replace(problem, compare=compare)
        alone = msgspec.structs.replace(changed, references=[one.program for one in failed])
        again = try_references(alone, runs, policy)
        if all(one.standing is Standing.ACCEPTED for one in again):
            passing = {one.number: trial for one, trial in zip(failed, again, strict=True)}
            trials = [
                msgspec.structs.replace(passing.get(one.number, one), number=one.number) for one in tried
            ]
            why = f"{comparison_text(compare)}, since {len(tried)} references then agree with the tests"
            return changed, trials, DefectFlag("comparison_set", why)
    return None


def _looser(compare: Compare, tests: CallTests) -> Iterator[Compare]:
    """Yield comparisons that allow one thing more, the smaller steps first."""
    if compare.mode not in ("tokens", "values"):
        return
    values = compare if compare.mode == "values" else Compare("values")
    orders = ("all",) if compare.order else ("any", "inner", "all")
    for order in orders:
        yield msgspec.structs.replace(values, order=order)
    numbers, _ = leaves([case.expected for case in tests.cases])
    # Integers may be counts, of which one is right.
    if compare.abs is compare.rel is None and all(isinstance(number, float) for number in numbers):
        yield msgspec.structs.replace(values, abs=_ERROR, rel=_ERROR)
    if not compare.any_case:
        yield msgspec.structs.replace(values, any_case=True)

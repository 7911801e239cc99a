"""Validation of one problem: its defects, and the decision under a policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.problem import CallTests, Compare, Limits, NoTests, Problem
from whetstone.data.decisions import ProblemDecision
from whetstone.data.resumable import digest_of
from whetstone.data.validate.cases import case_flags
from whetstone.data.validate.comparing import comparison_text, leaves, statement_flags, with_stated_comparison
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import DefectFlag, by_weight
from whetstone.data.validate.references import (
    Cost,
    ReferenceTrial,
    Standing,
    cost_of,
    limits_for,
    reference_flags,
    try_references,
)
from whetstone.data.validate.runs import Runs, is_python
from whetstone.data.validate.shared_tests import SharedTests
from whetstone.data.validate.strength import (
    Strength,
    mutant_strength,
    strength_flags,
    trivial_flags,
    wrong_flags,
)

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


STEP = "validate"


class ValidationOutcome(Struct, frozen=True, omit_defaults=True):
    """The defects of a problem, as plain data for a journal.

    ``digest`` is that of the problem; ``flags`` are ordered by weight; ``accepted`` and
    ``removed`` are indices of references; ``limits`` and ``compare`` are new ones, or None.
    """

    problem_id: str
    digest: str
    flags: list[DefectFlag] = []
    accepted: list[int] = []
    removed: list[int] = []
    cost: Cost | None = None
    limits: Limits | None = None
    strength: Strength | None = None
    compare: Compare | None = None


class Validator:
    """Finds the defects of a problem. Thread-safe: several problems may be validated concurrently."""

    def __init__(self, runs: Runs, policy: Policy, shared: SharedTests | None = None) -> None:
        """``shared`` has counted the tests of the whole set; None checks each problem alone."""
        self._runs = runs
        self._policy = policy
        self._shared = shared

    def validate(self, problem: Problem) -> ValidationOutcome:
        """Return the defects of a problem. No program is run for a problem that is dropped already."""
        digest = digest_of(problem)
        if isinstance(problem.tests, NoTests):
            nothing = DefectFlag("nothing_to_validate", "tests of kind `none`")
            return ValidationOutcome(problem.id, digest, self._reported_flags([nothing]))
        ruling: list[DefectFlag] = []
        if self._policy.treatment("comparison_set") != "ignore":
            problem, flag = with_stated_comparison(problem)
            ruling = [flag] if flag else []
        compare = problem.compare if ruling else None
        shared = self._shared.flags(problem) if self._shared is not None else ()
        test_flags = [*case_flags(problem, self._policy), *shared]
        flags = self._reported_flags([*ruling, *statement_flags(problem), *test_flags])
        # Running programs is the expensive part, and cannot change this decision.
        if self._policy.drops(flags):
            return ValidationOutcome(problem.id, digest, flags, compare=compare)
        tried = try_references(problem, self._runs, self._policy)
        if self._policy.treatment("comparison_set") != "ignore" and (
            agreed := agreed_comparison(problem, tried, self._runs, self._policy)
        ):
            problem, tried, flag = agreed
            compare = problem.compare
            flags = [*flags, flag]
        flags = self._reported_flags([*flags, *reference_flags(problem, tried)])
        accepted = [one for one in tried if one.standing is Standing.ACCEPTED]
        cost = cost_of([judgement for one in accepted for judgement in one.judgements])
        limits = limits_for(problem.limits, cost, self._policy)
        found = ValidationOutcome(
            problem.id,
            digest,
            flags,
            [one.number for one in accepted],
            [one.number for one in tried if accepted and one.standing in (Standing.FAILED, Standing.FLAKY)],
            cost if accepted else None,
            # Only a change is stored, which keeps the journal small.
            limits if limits != problem.limits else None,
            compare=compare,
        )
        if self._policy.drops(flags):
            return found
        return self._with_strength(msgspec.structs.replace(problem, limits=limits), accepted, cost, found)

    def _with_strength(
        self, problem: Problem, accepted: list[ReferenceTrial], cost: Cost, found: ValidationOutcome
    ) -> ValidationOutcome:
        """Return the outcome with the strength of the tests against wrong programs."""
        flags = [*found.flags, *wrong_flags(problem, self._runs)]
        if self._policy.trivial_programs:
            flags += trivial_flags(problem, cost, self._runs, self._policy)
        strength = None
        in_python = [one.program for one in accepted if is_python(one.program)]
        if in_python and not self._policy.drops(self._reported_flags(flags)):
            strength = mutant_strength(problem, in_python[0], cost, self._runs, self._policy)
        if strength is not None:
            flags += strength_flags(strength)
        return msgspec.structs.replace(found, flags=self._reported_flags(flags), strength=strength)

    def _reported_flags(self, flags: list[DefectFlag]) -> list[DefectFlag]:
        return [flag for flag in by_weight(flags) if self._policy.treatment(flag.reason) != "ignore"]


def settle(
    problem: Problem, outcome: ValidationOutcome, policy: Policy
) -> Iterator[Problem | ProblemDecision]:
    """Yield a decision for each mark, one to keep or drop the problem, and the kept problem."""
    dropped = policy.drops(outcome.flags)
    for flag in outcome.flags:
        if flag is not dropped:
            yield ProblemDecision(problem.id, STEP, "mark", flag.reason, flag.detail, problem.source)
    if dropped:
        yield ProblemDecision(problem.id, STEP, "drop", dropped.reason, dropped.detail, problem.source)
        return
    yield ProblemDecision(problem.id, STEP, "keep", *_reason_to_keep(outcome), problem.source)
    yield _validated_problem(problem, outcome)


def _reason_to_keep(outcome: ValidationOutcome) -> tuple[str, str]:
    """Return the reason and the detail of keeping a problem: whether anything confirms the tests."""
    if not outcome.accepted:
        return "unconfirmed", "no reference was accepted"
    strength = outcome.strength
    refused = f", {strength.killed} of {strength.tried} mutants refused" if strength else ""
    return "confirmed", f"{len(outcome.accepted)} references accepted{refused}"


def _validated_problem(problem: Problem, outcome: ValidationOutcome) -> Problem:
    """Return the problem without failing references, under its new limits, with ``meta.validation``."""
    facts: dict[str, Any] = {
        "flags": {flag.reason: flag.detail for flag in outcome.flags},
        "references_accepted": len(outcome.accepted),
        "references_removed": len(outcome.removed),
    }
    if outcome.cost is not None:
        facts["slowest_cpu_s"] = round(outcome.cost.cpu_s, 4)
        facts["peak_mb"] = round(outcome.cost.peak_mb, 1)
    if outcome.limits is not None:
        facts["limits_before"] = msgspec.to_builtins(problem.limits)
    if outcome.compare is not None:
        facts["compare_before"] = msgspec.to_builtins(problem.compare)
    if outcome.strength is not None:
        facts["mutants"] = {"refused": outcome.strength.killed, "tried": outcome.strength.tried}
    return msgspec.structs.replace(
        problem,
        references=[p for n, p in enumerate(problem.references) if n not in outcome.removed],
        limits=outcome.limits or problem.limits,
        compare=outcome.compare or problem.compare,
        meta={**problem.meta, "validation": facts},
    )

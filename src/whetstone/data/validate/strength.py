"""The strength of the tests of a problem: mutants, known wrong programs and trivial programs that they
reject."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from whetstone.core.problem import InteractiveTests, Problem, Program
from whetstone.data.validate.cases import test_count
from whetstone.data.validate.mutants import MUTANT_SEED, mutants
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import DefectFlag
from whetstone.data.validate.references import Cost, with_limits
from whetstone.data.validate.runs import Runs
from whetstone.data.validate.trivial import trivial_programs
from whetstone.judge import Judgement, Verdict

# A mutant that needs this multiple of the reference's CPU time counts as rejected, but never below the
# second.
_SLOWER = 10
_LEAST_CPU_S = 1.0
# The share of mutants that tests must reject, if at least so many were tried. Some mutants are equivalent to
# the reference, so a higher bound would mark strong tests.
_LEAST_REJECTED = 0.5
_FEWEST_MUTANTS = 4


class Strength(Struct, frozen=True):
    """The number of rejected mutants, of tried ones, and the changes of the accepted ones."""

    killed: int
    tried: int
    survivors: list[str]


def mutant_strength(
    problem: Problem, reference: Program, cost: Cost, runs: Runs, policy: Policy
) -> Strength | None:
    """Try mutants of an accepted Python reference. Return None if none was judged.

    Mutants of interactive problems are not tried. Half of them would wait for an interactor that waits for
    them, and each would occupy a worker until the wall-clock limit.
    """
    if isinstance(problem.tests, InteractiveTests):
        return None
    tried = killed = 0
    survivors: list[str] = []
    limited = _with_short_limit(problem, cost)
    for mutant in mutants(reference.source, policy.mutants, f"{MUTANT_SEED}:{problem.id}"):
        judgement = _run(runs, limited, Program(reference.language, mutant.source))
        # A mutant without a verdict shows nothing about the tests.
        if judgement.verdict is Verdict.JUDGE_ERROR:
            continue
        tried += 1
        killed += not judgement.accepted
        if judgement.accepted:
            survivors.append(mutant.change)
    return Strength(killed, tried, survivors) if tried else None


def strength_flags(strength: Strength) -> Iterator[DefectFlag]:
    """Yield a flag for tests that accept too many mutants."""
    if strength.tried >= _FEWEST_MUTANTS and strength.killed < _LEAST_REJECTED * strength.tried:
        survivors = "; ".join(strength.survivors[:3])
        yield DefectFlag(
            "weak_tests", f"{strength.killed} of {strength.tried} mutants refused; accepted: {survivors}"
        )


def trivial_flags(problem: Problem, cost: Cost, runs: Runs, policy: Policy) -> Iterator[DefectFlag]:
    """Yield a flag for the first trivial program that is accepted.

    With fewer tests than the policy requires, the flag is about their number: for one test, a program that
    prints its answer is no evidence.
    """
    limited = _with_short_limit(problem, cost)
    count = test_count(problem)
    for trivial in trivial_programs(problem):
        if _run(runs, limited, trivial.program).accepted:
            if count < policy.fewest_tests:
                tests = f"{count} test{'s' if count > 1 else ''}"
                yield DefectFlag("too_few_to_judge", f"{tests}, which a program passes that {trivial.does}")
            else:
                yield DefectFlag("trivial_program_passes", f"one that {trivial.does}")
            return


def wrong_flags(problem: Problem, runs: Runs) -> Iterator[DefectFlag]:
    """Yield a flag for known wrong programs that are accepted, and another for those not judged."""
    judged = [(n, runs.run(problem, p, stop_at_first_failure=True)) for n, p in enumerate(problem.wrong)]
    passing = [f"wrong[{n}] passes every test; add a test that it fails" for n, j in judged if j.accepted]
    unjudged = [f"wrong[{n}]: {j.reason}" for n, j in judged if j.verdict is Verdict.JUDGE_ERROR]
    if passing:
        yield DefectFlag("wrong_program_passes", "; ".join(passing))
    if unjudged:
        yield DefectFlag("not_judged", "; ".join(unjudged))


def _with_short_limit(problem: Problem, cost: Cost) -> Problem:
    """Return the problem with a time limit that an endless loop soon reaches."""
    cpu_s = min(problem.limits.cpu_s, max(_SLOWER * cost.cpu_s, _LEAST_CPU_S))
    return with_limits(problem, cpu_s, problem.limits.memory_mb)


def _run(runs: Runs, problem: Problem, program: Program) -> Judgement:
    # One failure rejects a program, and a mutant over the limit counts as rejected in any case.
    return runs.run(problem, program, stop_at_first_failure=True, confirm_time_limit=False)

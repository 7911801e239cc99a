"""Run the references of a problem, and derive defects of its tests.

References are judged under larger limits than the problem's if the policy allows it, to measure slow ones.
Each runs on all cases several times, with other hash seeds and so other orders of sets. Differing verdicts
are flaky. A reference that could not be judged is no evidence.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from enum import Enum

import msgspec
from msgspec import Struct

from whetstone.core.problem import InteractiveTests, Limits, Problem, Program, StdinTests, case_count
from whetstone.core.syntax import parsed
from whetstone.data.sources.programs import is_python_2
from whetstone.data.validate.cases import describe_cases
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import DefectFlag
from whetstone.data.validate.runs import Runs, is_python
from whetstone.judge import Judgement, Verdict
from whetstone.judge.environments.missing import lacks_package
from whetstone.judge.kinds.assert_processes import why_inseparable

# At least two references, and a third of them, must differ before a test is taken to be too strict.
_FEWEST_PROVING, _SHARE_PROVING = 2, 3
# References run under this memory limit, or under the problem's own if it is larger.
MOST_MEMORY_MB = 2048.0
# Limits are at least these multiples of what the slowest and the largest reference use: programs of a model
# are rarely as fast as the published ones.
_CPU_FACTOR = 4.0
_MEMORY_FACTOR = 2.0
# Runs of a Python reference that makes sets. If one order of two gives another answer, eight runs find it in
# 127 of 128 cases.
_HASH_SEEDS = 8
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
# After these verdicts, running the other cases shows nothing or is too expensive.
_FINAL_VERDICTS = (Verdict.COMPILE_ERROR, Verdict.NO_CODE, Verdict.TIME_LIMIT, Verdict.MEMORY_LIMIT)


class Standing(Enum):
    """The results of all runs of a reference."""

    ACCEPTED = "accepted"
    FLAKY = "flaky"
    FAILED = "failed"
    UNJUDGED = "unjudged"


class ReferenceTrial(Struct, frozen=True):
    """A reference and its judgements. ``number`` is its index among the problem's references."""

    number: int
    program: Program
    judgements: list[Judgement]
    standing: Standing

    @property
    def place(self) -> str:
        """The position of the program in the problem, such as ``references[0]``."""
        return f"references[{self.number}]"

    @property
    def failure(self) -> Judgement:
        """The first judgement that is not accepted; of an accepted reference, its first judgement."""
        return next((j for j in self.judgements if not j.accepted), self.judgements[0])

    @property
    def passed(self) -> set[int]:
        """The cases that were accepted in every run that reached them."""
        cases = self._cases(Verdict.ACCEPTED)
        return cases - self.refused

    @property
    def refused(self) -> set[int]:
        """The cases that were rejected in some run."""
        return {
            case.index
            for judgement in self.judgements
            for case in judgement.cases
            if case.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR)
        }

    @property
    def inconsistent(self) -> set[int]:
        """The cases that were accepted in one run and rejected in another."""
        return self._cases(Verdict.ACCEPTED) & self.refused

    def _cases(self, verdict: Verdict) -> set[int]:
        return {case.index for j in self.judgements for case in j.cases if case.verdict is verdict}

    def explain(self) -> str:
        """Return in one line why the reference is not accepted."""
        if self.standing is Standing.FLAKY:
            cases = describe_cases(sorted(self.inconsistent))
            return f"{self.place}: {cases} accepted in one run and not in another"
        failure = self.failure
        where = f", {describe_cases(sorted(self.refused))}" if self.refused else ""
        why = f": {failure.reason}" if failure.reason else ""
        return f"{self.place}: {failure.verdict.value}{where}{why}"


def try_references(problem: Problem, runs: Runs, policy: Policy) -> list[ReferenceTrial]:
    """Run every reference as often as the policy requires."""
    generous = with_limits(
        problem,
        max(problem.limits.cpu_s, policy.most_cpu_s),
        max(problem.limits.memory_mb, MOST_MEMORY_MB),
    )
    return [
        _try_reference(problem, generous, number, program, runs, policy)
        for number, program in enumerate(problem.references)
    ]


def _try_reference(
    problem: Problem, generous: Problem, number: int, program: Program, runs: Runs, policy: Policy
) -> ReferenceTrial:
    usual, *others = hash_seeds(program, policy)
    first = runs.run(generous, program, stop_at_first_failure=True, hash_seed=usual)
    judgements = [first]
    if first.accepted:
        for seed in others:
            judgements.append(runs.run(generous, program, stop_at_first_failure=True, hash_seed=seed))
            # One differing run is enough to show that the reference is flaky.
            if not judgements[-1].accepted:
                break
    elif first.verdict is not Verdict.JUDGE_ERROR and first.verdict not in _FINAL_VERDICTS:
        # This shows which cases fail, and whether they fail again. The problem's own limits bound the cost.
        for seed in (usual, *others):
            fully = runs.run(
                problem, program, stop_at_first_failure=False, confirm_time_limit=False, hash_seed=seed
            )
            judgements.append(fully)
            if _standing(judgements) is Standing.FLAKY:
                break
    return ReferenceTrial(number, program, judgements, _standing(judgements))


def _standing(judgements: list[Judgement]) -> Standing:
    verdicts = {judgement.verdict for judgement in judgements}
    if verdicts == {Verdict.ACCEPTED}:
        return Standing.ACCEPTED
    judged = verdicts - {Verdict.JUDGE_ERROR}
    if ReferenceTrial(0, Program("", ""), judgements, Standing.FAILED).inconsistent:
        return Standing.FLAKY
    return Standing.FAILED if judged - {Verdict.ACCEPTED} else Standing.UNJUDGED


def reference_flags(problem: Problem, tried: list[ReferenceTrial]) -> Iterator[DefectFlag]:
    """Yield the defects of the tests that the references show, or the lack of references."""
    if not tried:
        interactive = isinstance(problem.tests, InteractiveTests)
        missing = "no reference shows that the interactor works"
        yield DefectFlag("no_reference", missing if interactive else "no program confirms the tests")
        if why := why_inseparable(problem):
            yield DefectFlag("inseparable_tests", why)
        return
    if forgeable := [one for one in tried if any(j.shared_interpreter for j in one.judgements)]:
        why = "the test code works only in the program's own interpreter"
        yield DefectFlag("needs_shared_interpreter", _details(forgeable, lambda _: why))
    by: dict[Standing, list[ReferenceTrial]] = {standing: [] for standing in Standing}
    for one in tried:
        by[one.standing].append(one)
    if by[Standing.UNJUDGED]:
        yield DefectFlag("not_judged", _details(by[Standing.UNJUDGED], lambda t: t.failure.reason))
    yield from _disagreements(problem, tried)
    if by[Standing.ACCEPTED]:
        refuted = [*by[Standing.FAILED], *by[Standing.FLAKY]]
        if refuted:
            yield DefectFlag("reference_removed", "; ".join(one.explain() for one in refuted))
    elif lacking := [one for one in tried if lacks_package(one.failure.reason)]:
        yield DefectFlag("missing_package", _details(lacking, lambda t: t.failure.reason))
    elif by[Standing.FLAKY]:
        yield DefectFlag("flaky", "; ".join(one.explain() for one in by[Standing.FLAKY]))
    elif not by[Standing.UNJUDGED]:
        yield from _all_failed(problem, by[Standing.FAILED])


def _details(tried: list[ReferenceTrial], detail_of: Callable[[ReferenceTrial], str]) -> str:
    return "; ".join(f"{one.place}: {detail_of(one)}" for one in tried)


def _disagreements(problem: Problem, tried: list[ReferenceTrial]) -> Iterator[DefectFlag]:
    """Yield a flag if references that are right in most cases disagree about some cases."""
    count = case_count(problem)
    likely = [
        t for t in tried if t.standing in (Standing.ACCEPTED, Standing.FAILED) and 2 * len(t.passed) >= count
    ]
    differing = sorted(
        {
            case.index
            for one in likely
            for judgement in one.judgements
            for case in judgement.cases
            if case.verdict is Verdict.WRONG_ANSWER and any(case.index in other.passed for other in likely)
        }
    )
    if not differing:
        return
    refused = [t for t in likely if not t.refused.isdisjoint(differing)]
    if _shows_several_answers(problem, len(refused), len(likely), differing):
        others = f"{len(refused)} of {len(likely)} references that are right elsewhere answer otherwise"
        yield DefectFlag("several_answers", f"{others} in {describe_cases(differing)}")
    else:
        yield DefectFlag("references_differ", f"about {describe_cases(differing)}")


def _shows_several_answers(problem: Problem, refused: int, likely: int, differing: list[int]) -> bool:
    """Return whether the tests accept too few answers, rather than a reference being wrong.

    At least two references and a third of them must be rejected; fewer are taken to be wrong. An answer that
    is a single number has one value.
    """
    # Of different numbers, at most one is right.
    if all(_asks_number(problem, number) for number in differing):
        return False
    return refused >= _FEWEST_PROVING and _SHARE_PROVING * refused >= likely


def _asks_number(problem: Problem, number: int) -> bool:
    """Return whether a case of text expects a single number."""
    tests = problem.tests
    return isinstance(tests, StdinTests) and _NUMBER.fullmatch(tests.cases[number].output.strip()) is not None


def _answers_differ(problem: Problem, refused: list[ReferenceTrial], number: int) -> bool:
    """Return whether the references that a case rejects answer it differently. Equal answers mean a wrong
    test."""
    if _asks_number(problem, number):
        return False
    reasons = {
        case.reason
        for one in refused
        for judgement in one.judgements
        for case in judgement.cases
        if case.index == number and case.verdict is Verdict.WRONG_ANSWER
    }
    return len(reasons) > 1


def _all_failed(problem: Problem, failed: list[ReferenceTrial]) -> Iterator[DefectFlag]:
    """Yield the reason why no reference is accepted. Those in Python 2 count only if there are no others."""
    # A Python 2 program fails for its language, which shows nothing about the tests.
    modern = [one for one in failed if not _python2(one)]
    if not modern:
        yield DefectFlag("python2_reference", "; ".join(one.place for one in failed))
        return
    explained = "; ".join(one.explain() for one in modern)
    # A slow program may be right, so it shows nothing about the tests.
    if any(one.failure.verdict is Verdict.TIME_LIMIT for one in modern):
        yield DefectFlag("reference_too_slow", explained)
        return
    always = set.intersection(*(one.refused for one in modern))
    if always and all(one.passed for one in modern):
        if apart := [number for number in sorted(always) if _answers_differ(problem, modern, number)]:
            yield DefectFlag(
                "several_answers", f"each of the references has its own answer in {describe_cases(apart)}"
            )
        yield DefectFlag(
            "wrong_test", f"{describe_cases(sorted(always))} of {case_count(problem)}; {explained}"
        )
    else:
        yield DefectFlag("reference_fails", explained)


def _python2(tried: ReferenceTrial) -> bool:
    failed_early = not tried.passed or tried.failure.verdict is Verdict.COMPILE_ERROR
    return failed_early and is_python(tried.program) and is_python_2(tried.program.source)


def with_limits(problem: Problem, cpu_s: float, memory_mb: float) -> Problem:
    """Return the problem under other limits of time and memory."""
    limits = msgspec.structs.replace(problem.limits, cpu_s=cpu_s, memory_mb=memory_mb)
    return msgspec.structs.replace(problem, limits=limits)


_MB = 1 << 20
_CPU_STEP_S = 0.1
_MEMORY_STEP_MB = 16


class Cost(Struct, frozen=True):
    """The maximum over all cases and runs: CPU seconds, and MB of resident memory.

    If cases share a process, only the sum of their CPU times is known. It is used as an upper bound of each.
    """

    cpu_s: float
    peak_mb: float


def cost_of(judgements: list[Judgement]) -> Cost:
    """Return the CPU time of the slowest case and the memory of the largest."""
    cpu_s = 0.0
    for judgement in judgements:
        times = [case.cpu_s for case in judgement.cases]
        # One limit holds for all cases of a process.
        cpu_s = max(cpu_s, sum(times) if judgement.shared_process else max(times, default=0.0))
    peak = max((case.peak_bytes for judgement in judgements for case in judgement.cases), default=0)
    return Cost(cpu_s, peak / _MB)


def limits_for(limits: Limits, cost: Cost, policy: Policy) -> Limits:
    """Return the limits, raised to a multiple of the cost, up to the policy's bound; never lowered."""
    cpu_s = min(_CPU_FACTOR * cost.cpu_s, policy.most_cpu_s)
    memory_mb = min(_MEMORY_FACTOR * cost.peak_mb, MOST_MEMORY_MB)
    return msgspec.structs.replace(
        limits,
        # Only references were measured. A lower limit could reject a correct program that is slower.
        cpu_s=max(limits.cpu_s, _round_up(cpu_s, _CPU_STEP_S)),
        memory_mb=max(limits.memory_mb, _round_up(memory_mb, _MEMORY_STEP_MB)),
    )


def _round_up(value: float, step: float) -> float:
    """Return the next multiple of ``step``, so that runs with small differences give the same limit."""
    return round(math.ceil(value / step - 1e-9) * step, 6)


_SETS = {"set", "frozenset", "hash"}
_VIEWS = {"keys", "items"}


def hash_seeds(program: Program, policy: Policy) -> list[int]:
    """Return the hash seeds of a reference's runs: several different ones for a reference that makes sets.

    The judge uses one seed. A program whose output depends on the order of a set would always pass there, or
    always fail.
    """
    # Another seed changes only the order of sets and hashes. Other programs need fewer runs.
    runs = max(policy.repeats, _HASH_SEEDS if makes_sets(program) else 1)
    return list(range(runs))


def makes_sets(program: Program) -> bool:
    """Return whether a program may make a set. One that does not parse makes none."""
    tree = parsed(program.source) if is_python(program) else None
    return tree is not None and any(_is_set(node) for node in ast.walk(tree))


def _is_set(node: ast.AST) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    # Operators on views of dictionaries, such as `a.keys() & b.keys()`, give sets.
    if isinstance(node, ast.BinOp):
        return any(
            isinstance(side, ast.Call) and isinstance(side.func, ast.Attribute) and side.func.attr in _VIEWS
            for side in (node.left, node.right)
        )
    return isinstance(node, ast.Name) and node.id in _SETS

"""Strengthening one problem: inputs made, labelled, held against wrong programs, the best of them kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Struct

from whetstone.core.flag import Flag
from whetstone.core.problem import AssertTests, Limits, Problem, Program, StdinTests, case_count
from whetstone.core.settings import Count, Natural, Positive, Section
from whetstone.data.resumable import digest_of
from whetstone.data.strengthen.answers import Answers, hurried
from whetstone.data.strengthen.choice import Chooser, Fault
from whetstone.data.strengthen.drawing import Draw
from whetstone.data.strengthen.evidence import StrengthenEvidence
from whetstone.data.strengthen.forms import (
    AddedTests,
    LabelledInput,
    NotRead,
    TestForm,
    joined,
    reads,
    with_added,
)
from whetstone.data.strengthen.input_ablations import blindnesses, changed_inputs
from whetstone.data.strengthen.inputs import Inputs
from whetstone.data.strengthen.statement_constraints import said_in
from whetstone.data.strengthen.validity import is_valid, validator_of
from whetstone.data.validate.mutants import mutants
from whetstone.data.validate.references import makes_sets
from whetstone.data.validate.runs import Runs, is_python
from whetstone.data.validate.statements import leaves_open
from whetstone.judge import Verdict

# What a mutant may use: so many times what the reference needs, and never less than this.
_SLOWER, _LEAST_CPU_S = 10, 0.3
# No new test takes a reference more than this part of the time limit: other right programs are slower.
_SHARE_OF_LIMIT = 4
_AT_ONCE = 50
_CPU_STEP_S = 0.01
# Inputs on which the reference stands for programs that do not see all of them.
_MOST_CALLED, _MOST_PRINTED = 8_000, 600
# Runs of a reference that makes sets, each with another order of their elements.
_HASH_SEEDS = 4
_OPEN = ("several_answers", "references_differ")


class Effort(Section):
    """How much is done for a problem."""

    TITLE: ClassVar[str] = "effort"

    inputs: Annotated[Count, Flag("inputs made for a problem", "N")] = 200
    mutants: Annotated[Natural, Flag("mutants of its first reference", "N")] = 80
    rounds: Annotated[Count, Flag("rounds; in each, a new test may be found for a mutant", "N")] = 3
    tests: Annotated[Count, Flag("new tests of a problem, at most", "N")] = 48
    budget: Annotated[
        Positive, Flag("CPU seconds of the slowest reference that all new tests may take together", "S")
    ] = 0.5
    seed: Annotated[int, Flag("of the inputs", "N")] = 0


class StrengthenOutcome(Struct, frozen=True, omit_defaults=True):
    """What came of a problem: plain data, which a journal keeps. ``reason`` says why nothing was added."""

    problem_id: str
    digest: str
    added: AddedTests = AddedTests()
    evidence: StrengthenEvidence | None = None
    reason: str = ""
    detail: str = ""


class Strengthener:
    """Makes tests stronger. Thread-safe: several problems may be worked on at a time."""

    def __init__(self, runs: Runs, answers: Answers, effort: Effort) -> None:
        self._runs, self._answers, self._effort = runs, answers, effort

    def strengthen(self, problem: Problem, written: Sequence[str | list[Any]] = ()) -> StrengthenOutcome:
        """New tests for a problem. ``written`` are inputs that a generator wrote: text, or arguments."""
        digest = digest_of(problem)
        try:
            return _Work(problem, digest, self._runs, self._answers, self._effort).done(written)
        except NotStrengthened as why:
            return StrengthenOutcome(problem.id, digest, reason=why.reason, detail=str(why))


def is_open_to_tests(problem: Problem) -> bool:
    """Whether a problem can get new tests, as far as can be told without running anything."""
    if not problem.references or (problem.checker is None and _leaves_open(problem)):
        return False
    try:
        reads(problem)
    except NotRead:
        return False
    return True


class NotStrengthened(Exception):
    """The problem stays as it is; ``reason`` is a slug to count by, the message one line for a person."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class _Work:
    def __init__(self, problem: Problem, digest: str, runs: Runs, answers: Answers, effort: Effort) -> None:
        self._problem, self._digest = problem, digest
        self._runs, self._answers, self._effort = runs, answers, effort
        self._draw = Draw(f"{effort.seed}:{problem.id}")
        self._made = self._invalid = self._unlabelled = 0
        if problem.checker is None and _leaves_open(problem):
            raise NotStrengthened("several_answers", "several answers may be right, and no checker decides")
        try:
            self._reads: TestForm = reads(problem)
        except NotRead as why:
            raise NotStrengthened("tests_not_read", str(why)) from None

    def done(self, written: Sequence[str | list[Any]]) -> StrengthenOutcome:
        references, cost = self._references()
        limits = hurried(self._problem.limits, self._dearest())
        wrong = self._surviving_wrong()
        made, given = self._inputs(written)
        cases, costs = self._labelled(made.candidates(self._effort.inputs), given, references)
        if wrong:
            more, dear = self._labelled(made.large(2), [], references)
            cases, costs = cases + more, costs + dear
        if not cases:
            raise NotStrengthened(
                "no_new_test", f"none of {self._made} inputs has an answer on which all agree"
            )
        tried, faults = self._surviving_mutants(references[0], cost)
        seeds = self._reads.label(references[0], self._reads.seeds, self._answers, limits)
        there = [(one.arguments, one.answer) for one in seeds]
        chooser = Chooser(self._reads, cases, costs, there, self._runs, self._draw)
        blind = self._blind(references[0], cases, limits)
        for name, numbers in blind.items():
            chooser.refuses(name, numbers)
        chooser.hold_against(faults, self._effort.rounds)
        chooser.hold_against(wrong, 1)
        self._reach_further(chooser, chooser.unrefused(faults), references)
        chosen = chooser.chosen(self._effort.tests, self._budget())
        if not chosen.kept:
            why = f"{len(cases)} new inputs, and none refuses what the tests accept"
            raise NotStrengthened("strong_already", why)
        self._hold_to_references(joined(chosen.kept), references)
        refused = set(chosen.refused)
        before = tried - len(faults), len(self._problem.wrong) - len(wrong)
        evidence = StrengthenEvidence(
            first=case_count(self._problem),
            added=len(chosen.kept),
            inputs=self._made,
            invalid=self._invalid,
            unlabelled=self._unlabelled,
            references=len(references),
            mutants=(tried, before[0], before[0] + len(refused & {fault.name for fault in faults})),
            wrong=(len(self._problem.wrong), before[1], before[1] + len(refused & {w.name for w in wrong})),
            blind=(len(blind), len(refused & set(blind))),
            spots=chosen.spots,
            cpu_s=round(chosen.cpu_s, 4),
            written=len({repr(one.arguments) for one in chosen.kept} & set(map(repr, given))),
            why=chosen.why,
        )
        return StrengthenOutcome(self._problem.id, self._digest, joined(chosen.kept), evidence)

    def _labelled(
        self, inputs: list[list[Any]], given: list[list[Any]], references: list[Program]
    ) -> tuple[list[LabelledInput], list[float]]:
        """What is valid of the inputs, with the answer on which all references agree; and what each costs."""
        inputs = [*given, *inputs]
        valid = self._valid(inputs)
        limits = hurried(self._problem.limits, self._dearest())
        labelled = self._reads.label(references[0], valid, self._answers, limits)
        cases, costs, crashed = self._agreed(labelled, references)
        self._made += len(inputs)
        self._invalid += len(inputs) - len(valid) + crashed
        self._unlabelled += len(valid) - crashed - len(cases)
        return cases, costs

    def _reach_further(self, chooser: Chooser, faults: list[Fault], references: list[Program]) -> None:
        """Inputs of kinds that no test shows, for mutants that no other refuses: the reference has code of
        its own for them, so it is meant to answer them."""
        if not faults:
            return
        said = said_in(self._problem.statement).wider()
        made = Inputs(self._reads.seeds, said, self._reads.names, self._draw, wide=True)
        cases, costs = self._labelled(made.candidates(self._effort.inputs), [], references)
        if cases:
            further = Chooser(self._reads, cases, costs, [], self._runs, self._draw)
            further.hold_against(faults, 1, wrong_only=True)
            chooser.take(further)

    def _dearest(self) -> float:
        """CPU seconds that one new test may take a reference."""
        return min(self._problem.limits.cpu_s, self._effort.budget) / _SHARE_OF_LIMIT

    def _budget(self) -> float:
        """Of all new tests together; where one limit holds for all asserts, they leave most of it."""
        budget = self._effort.budget
        together = isinstance(self._problem.tests, AssertTests)
        return min(budget, self._problem.limits.cpu_s / _SHARE_OF_LIMIT) if together else budget

    def _references(self) -> tuple[list[Program], float]:
        """The references that the tests accept, one in Python first, and the slowest case of any."""
        accepted: list[Program] = []
        slowest = 0.0
        for program in self._problem.references:
            judgement = self._runs.run(self._problem, program, stop_at_first_failure=True)
            if judgement.accepted:
                accepted.append(program)
                slowest = max(slowest, *(case.cpu_s for case in judgement.cases))
        if not accepted:
            raise NotStrengthened(
                "no_reference", "no reference is accepted, and without one nothing can be labelled"
            )
        accepted.sort(key=lambda program: not is_python(program))
        if not isinstance(self._problem.tests, StdinTests) and not is_python(accepted[0]):
            raise NotStrengthened("no_reference", "no reference is in Python, whose functions are called")
        return accepted, slowest

    def _inputs(self, written: Sequence[str | list[Any]]) -> tuple[Inputs, list[list[Any]]]:
        """What makes new inputs; and those that generators wrote."""
        said = said_in(self._problem.statement)
        made = Inputs(self._reads.seeds, said, self._reads.names, self._draw)
        given = [arguments for one in written if (arguments := self._reads.taken(one)) is not None]
        return made, given

    def _valid(self, inputs: list[list[Any]]) -> list[list[Any]]:
        """Those that the problem's validator accepts, where it has one."""
        validator = validator_of(self._problem)
        if validator is None:
            return inputs
        return is_valid(validator, inputs, self._reads, self._answers, self._problem.limits)

    def _agreed(
        self, labelled: list[LabelledInput], references: list[Program]
    ) -> tuple[list[LabelledInput], list[float], int]:
        """What every reference answers alike in all its runs, at what cost; and on how many one failed."""
        fine = set(range(len(labelled)))
        # A list of asserts has one limit, for all that are judged together here.
        limits = msgspec.structs.replace(
            self._problem.limits, cpu_s=self._problem.limits.cpu_s + _AT_ONCE * self._dearest()
        )
        costs = [0.0] * len(labelled)
        failed: set[int] = set()
        for program in references:
            for seed in range(_HASH_SEEDS if makes_sets(program) else 1):
                for start in range(0, len(labelled), _AT_ONCE):
                    numbers = [n for n in range(start, min(start + _AT_ONCE, len(labelled))) if n in fine]
                    if not numbers:
                        continue
                    part: Problem = msgspec.structs.replace(
                        self._reads.alone([labelled[number] for number in numbers]), limits=limits
                    )
                    judgement = self._runs.run(part, program, stop_at_first_failure=False, hash_seed=seed)
                    accepted = {case.index for case in judgement.cases if case.verdict is Verdict.ACCEPTED}
                    for case in judgement.cases:
                        costs[numbers[case.index]] = max(costs[numbers[case.index]], case.cpu_s)
                        if case.verdict not in (Verdict.ACCEPTED, Verdict.WRONG_ANSWER):
                            failed.add(numbers[case.index])
                    fine &= {n for n in fine if n not in numbers} | {numbers[at] for at in accepted}
        # In steps: what is chosen must not hang on the last digits of a clock.
        steps = [_CPU_STEP_S * math.ceil(cost / _CPU_STEP_S) for cost in costs]
        keep = sorted(n for n in fine if steps[n] <= self._dearest())
        return [labelled[n] for n in keep], [steps[n] for n in keep], len(failed)

    def _surviving_mutants(self, reference: Program, cost: float) -> tuple[int, list[Fault]]:
        """How many mutants were tried, and those that the tests accept."""
        if not is_python(reference):
            return 0, []
        limits = hurried(self._problem.limits, max(_SLOWER * cost, _LEAST_CPU_S))
        problem: Problem = msgspec.structs.replace(self._problem, limits=limits)
        tried, found = 0, list[Fault]()
        for mutant in mutants(reference.source, self._effort.mutants, f"{self._effort.seed}:{problem.id}"):
            program = Program(reference.language, mutant.source)
            judgement = self._runs.run(
                problem, program, stop_at_first_failure=True, confirm_time_limit=False, fork_per_case=False
            )
            if judgement.verdict is Verdict.JUDGE_ERROR:
                continue
            tried += 1
            if judgement.accepted:
                found.append(Fault(f"a mutant ({mutant.change})", program, limits, confirm=False))
        return tried, _named_apart(found)

    def _blind(self, reference: Program, cases: list[LabelledInput], limits: Limits) -> dict[str, list[int]]:
        """Programs that see a part of their input, and that the tests accept: which cases refuse them."""
        many = _MOST_PRINTED if isinstance(self._problem.tests, StdinTests) else _MOST_CALLED
        kinds = blindnesses(self._reads.seeds)
        seeds = self._reads.seeds[: max(1, many // (3 * max(1, len(kinds))))]
        fewer = cases[: max(8, (many - len(kinds) * len(seeds)) // max(1, len(kinds)))]
        inputs = [*seeds, *(case.arguments for case in fewer)]
        changed = {blind[0]: changed_inputs(blind, inputs) for blind in kinds}
        wanted = {repr(made): made for row in changed.values() for made in row if made is not None}
        answers = self._reads.label(reference, [*inputs, *wanted.values()], self._answers, limits)
        known = {repr(one.arguments): one.answer for one in answers}
        found: dict[str, list[int]] = {}
        for name, row in changed.items():
            differs = [
                made is not None
                and repr(made) in known
                and repr(arguments) in known
                and not _alike(known[repr(made)], known[repr(arguments)])
                for arguments, made in zip(inputs, row, strict=True)
            ]
            numbers = [at for at, differ in enumerate(differs[len(seeds) :]) if differ]
            if numbers and not any(differs[: len(seeds)]):
                found[f"a program that {name}"] = numbers
        return found

    def _surviving_wrong(self) -> list[Fault]:
        """Programs that are known to be wrong, and accepted."""
        limits: Limits = self._problem.limits
        return [
            Fault(f"wrong[{number}]", program, limits, confirm=True)
            for number, program in enumerate(self._problem.wrong)
            if self._runs.run(self._problem, program, stop_at_first_failure=True).accepted
        ]

    def _hold_to_references(self, added: AddedTests, references: list[Program]) -> None:
        """The problem as it will be has to accept every reference, or it stays as it was."""
        stronger = with_added(self._problem, added)
        for number, program in enumerate(references):
            judgement = self._runs.run(stronger, program, stop_at_first_failure=True)
            if not judgement.accepted:
                why = f"with {added.count} new tests, reference {number} is {judgement.verdict.value}"
                raise NotStrengthened("not_confirmed", f"{why}: {judgement.reason}")


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)
    return repr(one) == repr(other)


def _named_apart(faults: list[Fault]) -> list[Fault]:
    """Changes of one kind in one line get numbers."""
    seen: dict[str, int] = {}
    named: list[Fault] = []
    for fault in faults:
        count = seen[fault.name] = seen.get(fault.name, 0) + 1
        name = fault.name if count == 1 else f"{fault.name[:-1]}, {count})"
        named.append(msgspec.structs.replace(fault, name=name))
    return named


def _leaves_open(problem: Problem) -> bool:
    """Whether its statement, or a mark of ``data validate``, says that several answers are right."""
    validation: Any = problem.meta.get("validation")
    flags: Any = validation.get("flags") if isinstance(validation, dict) else None
    return leaves_open(problem) or (isinstance(flags, dict) and any(reason in flags for reason in _OPEN))

"""Strengthening one problem: inputs are made, answered by the references, and kept if they reject wrong
programs that the tests accept."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import msgspec
from msgspec import Struct

from whetstone.core.flag import Flag
from whetstone.core.problem import AssertTests, Problem, Program, StdinTests, case_count
from whetstone.core.settings import Count, Natural, NonEmpty, Positive, Section
from whetstone.data.resumable import digest_of
from whetstone.data.validate.comparing import leaves_open
from whetstone.data.validate.references import makes_sets
from whetstone.data.validate.runs import Runs, is_python
from whetstone.judge import Verdict
from whetstone_curation.audit.labelled_programs import GivenPrograms
from whetstone_curation.input_validator import validator_of
from whetstone_curation.strengthen.answers import Answers, with_cpu_limit
from whetstone_curation.strengthen.choice import (
    CPU_STEP_S,
    CandidateTest,
    Chooser,
    affordable,
    has_new_empty,
    rejections,
)
from whetstone_curation.strengthen.evidence import StrengthenEvidence
from whetstone_curation.strengthen.faults import Fault, FaultFinder
from whetstone_curation.strengthen.forms import (
    AddedTests,
    LabelledInput,
    TestForm,
    UnreadableTests,
    joined_tests,
    read_tests,
    recorded_inputs,
    valid_inputs,
    with_added,
)
from whetstone_curation.strengthen.schema import constants_of
from whetstone_curation.strengthen.ties import FreeOrder, free_orders, without_ties

if TYPE_CHECKING:
    from whetstone_curation.strengthen.inputs import Inputs

# No new test takes a reference more than this part of the time limit: other right programs are slower.
_SHARE_OF_LIMIT = 4
_AT_ONCE = 50
# Rejected mutants that are held against every candidate.
_DETECTED = 30
# Runs of a reference that makes sets, each with another order of their elements.
_HASH_SEEDS = 4
# Fewer samples do not vote.
_ENOUGH_VOTES = 4
# Further characters of strings in inputs of new kinds.
_MARKS = string.digits + " .,-!?"
_EVERY_CLASS = string.ascii_letters + _MARKS
NO_PROGRAMS = GivenPrograms()
_OPEN = ("several_answers", "references_differ")


class Effort(Section):
    """How much is done for a problem."""

    TITLE: ClassVar[str] = "effort"

    inputs: Annotated[Count, Flag("inputs made for a problem", "N")] = 400
    mutants: Annotated[Natural, Flag("mutants of its first reference", "N")] = 80
    tests: Annotated[Count, Flag("new tests of a problem, at most", "N")] = 24
    budget: Annotated[
        Positive, Flag("CPU seconds of the slowest reference that all new tests may take together", "S")
    ] = 0.5
    seed: Annotated[int, Flag("of the inputs", "N")] = 0
    programs: Annotated[
        NonEmpty | None,
        Flag("JSON lines with problem_id, source and, if known, correct; see below", "FILE"),
    ] = None


class StrengthenOutcome(Struct, frozen=True, omit_defaults=True):
    """The result for a problem, as a journal keeps it. ``reason`` says why nothing was added."""

    problem_id: str
    digest: str
    added: AddedTests = AddedTests()
    evidence: StrengthenEvidence | None = None
    reason: str = ""
    detail: str = ""


class Strengthener:
    """Makes tests stronger. Thread-safe: several problems may be processed at a time."""

    def __init__(self, runs: Runs, answers: Answers, effort: Effort) -> None:
        self._runs, self._answers, self._effort = runs, answers, effort

    def strengthen(self, problem: Problem, programs: GivenPrograms = NO_PROGRAMS) -> StrengthenOutcome:
        """Return new tests for a problem.

        programs: correct ones must agree with the references, as these with each other; wrong ones are to be
        rejected; those without a label decide by majority which inputs are dropped.
        """
        digest = digest_of(problem)
        try:
            work = _ProblemWork(problem, programs, self._runs, self._answers, self._effort)
            added, evidence = work.strengthened()
        except NotStrengthened as error:
            return StrengthenOutcome(problem.id, digest, reason=error.reason, detail=str(error))
        return StrengthenOutcome(problem.id, digest, added, evidence)


class NotStrengthened(Exception):
    """The problem stays as it is; ``reason`` is a key to count by, the message one line for a person."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class _ProblemWork:
    """The work on one problem, and its counts."""

    def __init__(
        self, problem: Problem, programs: GivenPrograms, runs: Runs, answers: Answers, effort: Effort
    ) -> None:
        self._problem, self._runs, self._answers, self._effort = problem, runs, answers, effort
        self._programs, self._draw_seed = programs, f"{effort.seed}:{problem.id}"
        self._validator = validator_of(problem)
        self._made = self._invalid = self._unanswered = self._disputed = 0
        self._with_none = True
        self._orders: list[FreeOrder] = []
        if problem.checker is None and _leaves_open(problem):
            raise NotStrengthened("several_answers", "several answers may be right, and no checker decides")
        try:
            self._form: TestForm = self._read(problem)
        except UnreadableTests as error:
            raise NotStrengthened("tests_not_read", str(error)) from None
        self._references, slowest_s = self._accepted_references()
        self._constants = constants_of(self._references[0])
        self._faults = FaultFinder(problem, slowest_s, runs)

    def _read(self, problem: Problem) -> TestForm:
        """Return the tests as inputs. Raises UnreadableTests."""
        try:
            return read_tests(problem)
        except UnreadableTests:
            recorded = recorded_inputs(problem, self._answers)
            if not recorded:
                raise
            return read_tests(problem, recorded)

    def strengthened(self) -> tuple[AddedTests, StrengthenEvidence]:
        """Return the new tests. Raises NotStrengthened."""
        problem = self._problem
        self._check_validator()
        seeds = self._label(self._form.seeds)
        if self._problem.checker is None:  # a checker accepts every right answer
            self._orders = free_orders(seeds, self._label)
        known = [*problem.wrong, *self._programs.wrong]
        wrong = self._faults.accepted_wrong(known)
        samples = self._faults.accepted_samples(self._programs.unlabelled)
        voted = len(samples) >= _ENOUGH_VOTES
        # A reference often returns None by accident where no input is expected.
        self._with_none = voted or "None" in problem.statement or any(each.answer is None for each in seeds)
        found = self._candidates(large=bool(wrong), voted=voted)
        candidates, contradicting = self._undisputed(found, samples)
        if not candidates:
            detail = f"none of {self._made} inputs has an answer that can be a test"
            raise NotStrengthened("no_new_test", detail)
        tried, survivors, rejected = self._faults.mutants(
            self._references[0], self._effort.mutants, self._draw_seed
        )
        faults = [*wrong, *survivors, *contradicting, *rejected[:: max(1, len(rejected) // _DETECTED)]]
        rejected_by = [(fault, self._rejections(fault, candidates)) for fault in faults]
        if not voted:  # else they are among the candidates
            self._try_marks(candidates, rejected_by)
        choice = Chooser(candidates, self._budget()).choose(
            rejected_by,
            [(each.arguments, each.answer) for each in seeds],
            self._effort.tests,
        )
        if not choice.kept:
            detail = f"{len(candidates)} new inputs, and none is of a new kind"
            raise NotStrengthened("strong_already", detail)
        added = joined_tests([each.case for each in choice.kept])
        self._confirm(added)
        return added, StrengthenEvidence(
            first=case_count(problem),
            added=len(choice.kept),
            inputs=self._made,
            invalid=self._invalid,
            unlabelled=self._unanswered,
            references=len(self._references),
            mutants=choice.counts(tried, survivors),
            samples=len(samples),
            disputed=self._disputed,
            wrong=choice.counts(len(known), wrong),
            cpu_s=round(sum(each.cpu_s for each in choice.kept), 4),
            why=choice.why,
        )

    def _rejections(self, fault: Fault, candidates: list[CandidateTest]) -> set[int]:
        """Return the candidates that reject a fault.

        Wide ones are tried if no other rejects it and the tests accept it. Only a wrong answer counts then,
        because an exception may mean that the program is right to refuse such an input. If it is the
        reference without a statement, the reference has code for the input.
        """
        usual = [number for number, each in enumerate(candidates) if not each.wide]
        found = rejections(fault, candidates, usual, self._form, self._runs)
        if found or not fault.accepted:
            return found
        return self._wide_rejections(fault, candidates)

    def _wide_rejections(self, fault: Fault, candidates: Sequence[CandidateTest]) -> set[int]:
        wide = [number for number, each in enumerate(candidates) if each.wide]
        verdicts = [Verdict.WRONG_ANSWER, *[Verdict.RUNTIME_ERROR] * fault.lacks_statement]
        return rejections(fault, candidates, wide, self._form, self._runs, verdicts)

    def _try_marks(self, candidates: list[CandidateTest], rejected: list[tuple[Fault, set[int]]]) -> None:
        """Add inputs with digits and marks, which no given input may have, and the faults that they reject.

        Whether they are valid is not known. They are, if the reference has a statement that only they reach.
        """
        missed = [
            (fault, found)
            for fault, found in rejected
            if fault.lacks_statement and fault.accepted and not found
        ]
        if not missed:
            return
        inputs = self._inputs(wide=True, other_letters=_MARKS).candidates(self._effort.inputs // 2)
        more = self._wide_candidates(inputs, [each.case.arguments for each in candidates])
        for fault, found in missed:
            found |= {len(candidates) + number for number in self._wide_rejections(fault, more)}
        candidates += more

    def _check_validator(self) -> None:
        """Raise NotStrengthened if the validator rejects a given input: it cannot be believed then."""
        seeds = self._form.seeds
        if self._validator is None:
            return
        valid = valid_inputs(self._validator, seeds, self._form, self._answers, self._problem.limits)
        if len(valid) < len(seeds):
            rejected = len(seeds) - len(valid)
            why = f"meta.input_validator rejects {rejected} of {len(seeds)} given inputs, or cannot be run"
            raise NotStrengthened("validator_fails", why)

    def _most_cpu_s(self) -> float:
        """Return the CPU seconds that one new test may take a reference."""
        return min(self._problem.limits.cpu_s, self._effort.budget) / _SHARE_OF_LIMIT

    def _budget(self) -> float:
        """Return the CPU seconds of all new tests. One limit holds for all asserts, so most of it is left."""
        together = isinstance(self._problem.tests, AssertTests)
        most = self._problem.limits.cpu_s / _SHARE_OF_LIMIT if together else math.inf
        return min(self._effort.budget, most)

    def _accepted_references(self) -> tuple[list[Program], float]:
        """Return the references that the tests accept, one in Python first, and their slowest case."""
        accepted: list[Program] = []
        slowest = 0.0
        for program in [*self._problem.references, *self._programs.correct]:
            judgement = self._runs.run(self._problem, program, stop_at_first_failure=True)
            if judgement.accepted:
                accepted.append(program)
                slowest = max(slowest, *(case.cpu_s for case in judgement.cases))
        if not accepted:
            raise NotStrengthened("no_reference", "the tests accept no reference, so nothing can be answered")
        accepted.sort(key=lambda program: not is_python(program))
        if not isinstance(self._problem.tests, StdinTests) and not is_python(accepted[0]):
            raise NotStrengthened("no_reference", "no reference is in Python, whose functions are called")
        return accepted, slowest

    def _candidates(self, *, large: bool, voted: bool) -> list[CandidateTest]:
        """Return inputs on whose answer all references agree; those of new kinds are marked. voted: whether
        samples decide which inputs stay."""
        count = self._effort.inputs
        # Whether other letters are valid is not known, unless enough programs can vote.
        usual, wide = self._inputs(), self._inputs(wide=True, other_letters=_EVERY_CLASS if voted else "")
        inputs = [*usual.rich(count // 4), *usual.candidates(count)]
        inputs += usual.large(2) if large else []
        found = [
            msgspec.structs.replace(each, wide=has_new_empty(each.case.arguments, self._form.seeds))
            for each in self._answered(inputs)
        ]
        found += self._wide_candidates([*wide.candidates(count), *wide.rich(count // 4)], inputs)
        return affordable(found)

    def _wide_candidates(self, inputs: list[list[Any]], known: list[list[Any]]) -> list[CandidateTest]:
        """Return the candidates of a new kind among inputs, without the known ones."""
        texts = {*map(repr, known)}
        answered = self._answered([arguments for arguments in inputs if repr(arguments) not in texts])
        return [msgspec.structs.replace(each, wide=True) for each in answered]

    def _inputs(self, *, wide: bool = False, other_letters: str = "") -> Inputs:
        from whetstone_curation.strengthen.inputs import Inputs  # takes time to import

        return Inputs(
            self._form.seeds,
            self._problem.statement,
            self._form.hints,
            self._draw_seed,
            wide=wide,
            other_letters=other_letters,
            constants=self._constants,
        )

    def _answered(self, inputs: list[list[Any]]) -> list[CandidateTest]:
        """Return the valid inputs with the answer on which all references agree."""
        valid = inputs
        if self._validator is not None:
            valid = valid_inputs(self._validator, inputs, self._form, self._answers, self._problem.limits)
        labelled = [each for each in self._label(valid) if each.answer is not None or self._with_none]
        labelled = without_ties(labelled, self._orders, self._label)
        found, failed = self._agreed(labelled)
        self._made += len(inputs)
        self._invalid += len(inputs) - len(valid) + failed
        self._unanswered += len(valid) - failed - len(found)
        return found

    def _label(self, inputs: list[list[Any]]) -> list[LabelledInput]:
        """Return the inputs with the answers of the first reference."""
        limits = with_cpu_limit(self._problem.limits, self._most_cpu_s())
        return self._form.label(self._references[0], inputs, self._answers, limits)

    def _agreed(self, labelled: list[LabelledInput]) -> tuple[list[CandidateTest], int]:
        """Return the cases that every reference passes in all its runs, and how many made one fail."""
        # A list of asserts has one limit, for all that are judged together here.
        cpu_s = self._problem.limits.cpu_s + _AT_ONCE * self._most_cpu_s()
        limits = msgspec.structs.replace(self._problem.limits, cpu_s=cpu_s)
        costs, failed = [0.0] * len(labelled), set[int]()
        agreed = set(range(len(labelled)))
        by_chance = False
        for program in self._references:
            for seed in range(_HASH_SEEDS if makes_sets(program) else 1):
                for start in range(0, len(labelled), _AT_ONCE):
                    numbers = [n for n in range(start, min(start + _AT_ONCE, len(labelled))) if n in agreed]
                    if not numbers:
                        continue
                    alone = self._form.problem_with([labelled[number] for number in numbers])
                    part: Problem = msgspec.structs.replace(alone, limits=limits)
                    judged = self._runs.run(part, program, stop_at_first_failure=False, hash_seed=seed)
                    agreed -= set(numbers)
                    for case in judged.cases:
                        number = numbers[case.index]
                        costs[number] = max(costs[number], case.cpu_s)
                        if case.verdict is Verdict.ACCEPTED:
                            agreed.add(number)
                        elif case.verdict is not Verdict.WRONG_ANSWER:
                            failed.add(number)
                        elif program is self._references[0] and _is_long(labelled[number].answer):
                            by_chance = True
        if by_chance:  # it disagrees with itself, so its lists have the order of a set
            agreed -= {number for number in agreed if _is_long(labelled[number].answer)}
        # In steps: the choice must not depend on the last digits of a clock.
        steps = [CPU_STEP_S * math.ceil(cost / CPU_STEP_S) for cost in costs]
        cheap = sorted(n for n in agreed if steps[n] <= self._most_cpu_s())
        return [CandidateTest(labelled[n], steps[n]) for n in cheap], len(failed)

    def _undisputed(
        self, candidates: list[CandidateTest], samples: Sequence[Fault]
    ) -> tuple[list[CandidateTest], list[Fault]]:
        """Return the candidates that enough samples pass, and the samples that fail one of these.

        An input on which most of them fail is outside the domain, or the reference is wrong about it. Of a
        kind that no given input shows, a quarter is enough to doubt it.
        """
        every = range(len(candidates))
        rejected = [rejections(sample, candidates, every, self._form, self._runs) for sample in samples]
        votes = Counter(number for found in rejected for number in found)
        most, most_wide = (len(samples) + 1) // 2, max(0, len(samples) - 1) // 4
        kept = [n for n, each in enumerate(candidates) if votes[n] <= (most_wide if each.wide else most)]
        self._disputed = len(candidates) - len(kept)
        contradicting = [
            sample for sample, found in zip(samples, rejected, strict=True) if not found.isdisjoint(kept)
        ]
        return [candidates[number] for number in kept], contradicting

    def _confirm(self, added: AddedTests) -> None:
        """Raise NotStrengthened unless the problem with the new tests accepts every reference."""
        stronger = with_added(self._problem, added)
        for number, program in enumerate(self._references):
            judgement = self._runs.run(stronger, program, stop_at_first_failure=True)
            if not judgement.accepted:
                why = f"with {added.count} new tests, reference {number} is {judgement.verdict.value}"
                raise NotStrengthened("not_confirmed", f"{why}: {judgement.reason}")


def _is_long(answer: Any) -> bool:
    """Return whether an answer has items whose order may be that of a set."""
    return isinstance(answer, list | tuple) and len(cast("list[Any]", answer)) > 1


def _leaves_open(problem: Problem) -> bool:
    """Return whether the statement, or a mark of ``data validate``, says that several answers are right."""
    validation: Any = problem.meta.get("validation")
    flags: Any = validation.get("flags") if isinstance(validation, dict) else None
    return leaves_open(problem) or (isinstance(flags, dict) and any(reason in flags for reason in _OPEN))

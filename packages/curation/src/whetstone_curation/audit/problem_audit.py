"""The audit of one problem: labelled programs are judged by its tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from whetstone.core.problem import InteractiveTests, NoTests, Problem, Program
from whetstone.data.resumable import digest_of
from whetstone.data.validate.mutants import mutants as make_mutants
from whetstone.data.validate.references import with_limits
from whetstone.data.validate.runs import Runs, is_python
from whetstone.judge import Judgement, Verdict
from whetstone_curation.audit.labelled_programs import LabelledProgram, ProgramOrigin, labelled_programs

# A mutant may use this multiple of the CPU time of the reference, but at least the seconds after it.
_SLOWER, _LEAST_CPU_S = 10, 1.0


class OriginCounts(Struct):
    """The number of judged programs of one origin and label, and of those that the tests accept."""

    origin: ProgramOrigin
    correct: bool
    judged: int = 0
    accepted: int = 0


class MisjudgedProgram(Struct, frozen=True):
    """A wrong program that the tests accept, or a correct one that they reject."""

    name: str
    origin: ProgramOrigin
    correct: bool
    verdict: str
    language: str
    source: str
    reason: str = ""


class ProblemAudit(Struct):
    """The findings of one problem. ``unjudged`` programs got no verdict and count in no rate."""

    problem_id: str
    digest: str
    counts: list[OriginCounts] = []
    misjudged: list[MisjudgedProgram] = []
    unjudged: int = 0
    note: str = ""

    def share(self, *, correct: bool, origins: Sequence[ProgramOrigin], accepted: bool) -> float | None:
        """Return the share of accepted or rejected programs of a label and of these origins; None without
        any."""
        rows = [row for row in self.counts if row.correct == correct and row.origin in origins]
        judged = sum(row.judged for row in rows)
        taken = sum(row.accepted for row in rows)
        return (taken if accepted else judged - taken) / judged if judged else None

    def add(self, labelled: LabelledProgram, judgement: Judgement) -> None:
        """Count a judged program."""
        if judgement.verdict is Verdict.JUDGE_ERROR:
            self.unjudged += 1
            return
        key = (labelled.origin, labelled.correct)
        row = next((row for row in self.counts if (row.origin, row.correct) == key), None)
        if row is None:
            row = OriginCounts(*key)
            self.counts.append(row)
        row.judged += 1
        row.accepted += judgement.accepted
        if judgement.accepted != labelled.correct:
            self.misjudged.append(
                MisjudgedProgram(
                    labelled.name,
                    labelled.origin,
                    labelled.correct,
                    judgement.verdict.value,
                    labelled.program.language,
                    labelled.program.source,
                    judgement.reason,
                )
            )


def audit_problem(
    problem: Problem,
    submissions: Mapping[str, Sequence[LabelledProgram]],
    runs: Runs,
    *,
    mutants: int,
    seed: int,
) -> ProblemAudit:
    """Judge all labelled programs of a problem, and up to ``mutants`` mutants of its first accepted
    reference."""
    audit = ProblemAudit(problem.id, digest_of(problem))
    if isinstance(problem.tests, NoTests):
        audit.note = "it has no tests"
        return audit
    reference, cpu_s = None, 0.0
    for labelled in labelled_programs(problem, submissions):
        judgement = runs.run(problem, labelled.program, stop_at_first_failure=True)
        audit.add(labelled, judgement)
        if reference is None and labelled.origin == "reference" and judgement.accepted:
            reference, cpu_s = labelled.program, max((case.cpu_s for case in judgement.cases), default=0.0)
    if reference is None:
        audit.note = "no reference is accepted, so there are no mutants" if mutants else ""
        return audit
    # The limit stops endless loops soon.
    limit = min(problem.limits.cpu_s, max(_SLOWER * cpu_s, _LEAST_CPU_S))
    limited = with_limits(problem, limit, problem.limits.memory_mb)
    for labelled in _mutants_of(problem, reference, mutants, seed):
        judgement = runs.run(limited, labelled.program, stop_at_first_failure=True, confirm_time_limit=False)
        audit.add(labelled, judgement)
    return audit


def _mutants_of(problem: Problem, reference: Program, count: int, seed: int) -> Iterator[LabelledProgram]:
    """Yield up to ``count`` mutants of a Python reference, all counted as wrong.

    Some mutants are equivalent to the reference, so the share of accepted mutants is an upper bound.
    Interactive problems have none: many mutants would wait for the interactor until the wall-clock limit.
    """
    if isinstance(problem.tests, InteractiveTests) or not is_python(reference):
        return
    for mutant in make_mutants(reference.source, count, f"{seed}:{problem.id}"):
        program = Program(reference.language, mutant.source)
        yield LabelledProgram(f"mutant ({mutant.change})", program, False, "mutant")

"""The audit of a set: rates with intervals, and the weakest problems. Streamed and resumable."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Struct

from whetstone.core.flag import Flag
from whetstone.core.intervals import share_interval
from whetstone.core.problem import Problem
from whetstone.core.settings import Natural, NonEmpty, Section
from whetstone.data.dataset import open_problems
from whetstone.data.resumable import ResumableFindings, file_digest, in_order
from whetstone.data.validate.runs import JudgesPrograms, Runs
from whetstone.judge.environments.environment import environment_named
from whetstone_curation.audit.labelled_programs import LabelledProgram, ProgramOrigin, read_submissions
from whetstone_curation.audit.problem_audit import MisjudgedProgram, ProblemAudit, audit_problem

_WEAKEST = 10
_THREADS_PER_WORKER = 2
_ATTEMPTS = 3
_CERTAIN: tuple[ProgramOrigin, ...] = ("reference", "wrong", "submission")


class AuditPlan(Section):
    """The programs that are judged."""

    TITLE: ClassVar[str] = "audit"

    programs: Annotated[
        NonEmpty | None,
        Flag("labelled programs as JSON lines with problem_id, source, correct and language", "FILE"),
    ] = None
    mutants: Annotated[Natural, Flag("mutants of a reference; 0 tries none", "N")] = 20
    seed: Annotated[int, Flag("of the mutants", "N")] = 0


class AuditRate(Struct, frozen=True):
    """The mean over problems of the share of misjudged programs, with its 95% interval.

    Programs of one problem depend on each other, so the problem is the unit of the sample. ``problems`` and
    ``programs`` are what the rate rests on; ``misjudged`` of the programs got the wrong verdict. ``rate``,
    ``low`` and ``high`` are None without any program.
    """

    name: str
    problems: int
    programs: int
    misjudged: int
    rate: float | None
    low: float | None
    high: float | None


class WeakProblem(Struct, frozen=True):
    """A problem whose tests accept wrong programs, with one of these programs."""

    problem_id: str
    known_wrong_accepted: float | None
    mutants_accepted: float | None
    program: MisjudgedProgram


class SetAudit(Struct, frozen=True):
    """The audit of a set. ``rejected`` are the correct programs that were rejected, by problem."""

    set: str
    problems: int
    unjudged: int
    rates: list[AuditRate]
    weakest: list[WeakProblem]
    rejected: dict[str, list[MisjudgedProgram]]


class _Begun(Struct, frozen=True):
    """The first line of the journal."""

    plan: dict[str, Any]
    programs: str
    environment: str


def journal_path(report: str | Path) -> Path:
    """Return where an unfinished audit with this report keeps its findings."""
    return Path(report).with_name(f"{Path(report).name}.audit.jsonl")


def audit_set(
    source: str | Path,
    judge: JudgesPrograms,
    plan: AuditPlan,
    *,
    report: str | Path | None = None,
    workers: int = 0,
    environment: str | os.PathLike[str] | None = None,
    watch: Callable[[Problem, ProblemAudit], None] = lambda problem, audit: None,
) -> SetAudit:
    """Audit all problems of a set. With ``report`` the findings are kept next to that file until the end.

    ``workers`` are those of the judge, 0 for one for each core. ``environment`` names the packages of
    programs, as for the judge. Raises UserError for an unreadable set or file of programs.
    """
    submissions: Mapping[str, Sequence[LabelledProgram]] = (
        read_submissions(plan.programs) if plan.programs else {}
    )
    runs = Runs(judge, _ATTEMPTS)
    threads = _THREADS_PER_WORKER * (workers or len(os.sched_getaffinity(0)))
    begun = _Begun(plan.model_dump(), file_digest(plan.programs), environment_named(environment).label)

    def work(problem: Problem) -> ProblemAudit:
        return audit_problem(problem, submissions, runs, mutants=plan.mutants, seed=plan.seed)

    journal = (
        ResumableFindings(
            journal_path(report), begun, ProblemAudit, work="audit", how="options or environment"
        )
        if report
        else nullcontext()
    )
    audits: list[ProblemAudit] = []
    with (
        journal as kept,
        closing(in_order(open_problems(source), work, runs.stop, threads, kept)) as found,
    ):
        for problem, audit in found:
            audits.append(audit)
            watch(problem, audit)
    return summarize(str(source), audits)


def summarize(name: str, audits: Sequence[ProblemAudit]) -> SetAudit:
    """Return the rates and the weakest problems of all audited problems."""
    rates = [
        _rate("false accepts, known wrong programs", audits, _CERTAIN, correct=False),
        _rate("false accepts, mutants (upper bound)", audits, ("mutant",), correct=False),
        _rate("false rejects, references", audits, ("reference",), correct=True),
        _rate("false rejects, submissions", audits, ("submission",), correct=True),
    ]
    rejected = {
        audit.problem_id: wrongly
        for audit in audits
        if (wrongly := [program for program in audit.misjudged if program.correct])
    }
    unjudged = sum(audit.unjudged for audit in audits)
    return SetAudit(name, len(audits), unjudged, rates, _weakest(audits), rejected)


def _rate(
    name: str, audits: Sequence[ProblemAudit], origins: tuple[ProgramOrigin, ...], *, correct: bool
) -> AuditRate:
    shares = [
        share
        for audit in audits
        if (share := audit.share(correct=correct, origins=origins, accepted=not correct)) is not None
    ]
    rows = [
        row for audit in audits for row in audit.counts if row.correct == correct and row.origin in origins
    ]
    judged, accepted = sum(row.judged for row in rows), sum(row.accepted for row in rows)
    misjudged = judged - accepted if correct else accepted
    if not shares:
        return AuditRate(name, 0, 0, 0, None, None, None)
    low, high = share_interval(shares)
    return AuditRate(name, len(shares), judged, misjudged, fmean(shares), low, high)


def _weakest(audits: Sequence[ProblemAudit]) -> list[WeakProblem]:
    """Return the problems that accept the largest share of known wrong programs, then of mutants."""
    weak: list[WeakProblem] = []
    for audit in audits:
        slipping = [program for program in audit.misjudged if not program.correct]
        if slipping:
            known = audit.share(correct=False, origins=_CERTAIN, accepted=True)
            mutated = audit.share(correct=False, origins=("mutant",), accepted=True)
            # A known wrong program is a stronger proof than a mutant.
            shown = min(slipping, key=lambda program: program.origin == "mutant")
            weak.append(WeakProblem(audit.problem_id, known, mutated, shown))
    weak.sort(key=lambda one: (-(one.known_wrong_accepted or 0), -(one.mutants_accepted or 0)))
    return weak[:_WEAKEST]


def encoded(audit: SetAudit) -> bytes:
    """Return the audit as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(audit), indent=2) + b"\n"

"""Strengthening of a set: streamed, with several problems at a time, resumable."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.dataset import open_problems, transform
from whetstone.data.decisions import ProblemDecision
from whetstone.data.resumable import ResumableFindings, file_digest, in_order
from whetstone.data.validate.runs import JudgesPrograms, Runs
from whetstone.judge.environments.environment import environment_named
from whetstone_curation.audit.labelled_programs import read_programs
from whetstone_curation.strengthen.answers import Answers
from whetstone_curation.strengthen.evidence import with_evidence
from whetstone_curation.strengthen.forms import with_added
from whetstone_curation.strengthen.strengthener import NO_PROGRAMS, Effort, Strengthener, StrengthenOutcome

STEP = "strengthen"
_THREADS_PER_WORKER = 2
_ATTEMPTS = 3

Watch = Callable[[Problem, StrengthenOutcome], None]


class StrengthenTally(Struct):
    """Counts over a set."""

    problems: int = 0
    stronger: int = 0
    tests: int = 0
    mutants: list[int] = field(default_factory=lambda: [0, 0, 0])
    wrong: list[int] = field(default_factory=lambda: [0, 0, 0])
    why: Counter[str] = field(default_factory=Counter[str])

    def add(self, found: StrengthenOutcome) -> None:
        """Count the outcome of a problem."""
        self.problems += 1
        if found.evidence is None:
            self.why[found.reason] += 1
            return
        self.stronger += 1
        self.tests += found.added.count
        for at in range(3):
            self.mutants[at] += found.evidence.mutants[at]
            self.wrong[at] += found.evidence.wrong[at]


class _Begun(Struct, frozen=True):
    """The first line of the journal: effort, number of problems, packages and programs."""

    effort: dict[str, Any]
    problems: int
    environment: str
    programs: str = ""


def journal_path(out: str | Path) -> Path:
    """Return the file of the outcomes of an unfinished run to ``out``."""
    return Path(out).with_name(f"{Path(out).name}.strengthening.jsonl")


def count_problems(source: str | Path) -> int:
    """Return the number of problems. Raises UserError for an empty set."""
    count = sum(1 for _ in open_problems(source))
    if not count:
        raise UserError(f"{source}: contains no problems")
    return count


def strengthen_set(
    source: str | Path,
    out: str | Path,
    judge: JudgesPrograms,
    effort: Effort,
    problems: int,
    *,
    workers: int = 0,
    minimum_tier: str = "restricted",
    packages: str | os.PathLike[str] | None = None,
    watch: Watch = lambda problem, found: None,
) -> StrengthenTally:
    """Write every problem, with its new tests, to ``out``, a dataset folder or a problem file.

    problems: their number (``count_problems``). workers: of the judge, 0 for one on each core. packages: the
    environment of programs, as for the judge. An interrupted run resumes only with the same effort, packages
    and programs. watch: called with each outcome, in the order of the problems.
    """
    tally = StrengthenTally()
    programs = read_programs(effort.programs) if effort.programs else {}
    runs = Runs(judge, _ATTEMPTS)
    threads = _THREADS_PER_WORKER * (workers or len(os.sched_getaffinity(0)))
    label, given = environment_named(packages).label, file_digest(effort.programs)
    begun = _Begun(effort.model_dump(), problems, label, given)
    with (
        Answers(minimum_tier, packages) as answers,
        ResumableFindings(
            journal_path(out), begun, StrengthenOutcome, work="strengthening", how="effort or environment"
        ) as journal,
    ):
        strengthener = Strengthener(runs, answers, effort)

        def work(problem: Problem) -> StrengthenOutcome:
            return strengthener.strengthen(problem, programs.get(problem.id, NO_PROGRAMS))

        def step(reading: Iterator[Problem]) -> Iterator[Problem | ProblemDecision]:
            with closing(in_order(reading, work, runs.stop, threads, journal)) as found:
                for problem, one in found:
                    tally.add(one)
                    yield from decision_and_problem(problem, one)
                    watch(problem, one)

        transform(source, out, step)
        journal.remove()
    return tally


def decision_and_problem(problem: Problem, found: StrengthenOutcome) -> Iterator[Problem | ProblemDecision]:
    """Yield the decision about a problem, and the problem with its new tests."""
    if found.evidence is None:
        yield ProblemDecision(problem.id, STEP, "mark", found.reason, found.detail, problem.source)
        yield problem
        return
    yield ProblemDecision(problem.id, STEP, "mark", "strengthened", found.evidence.summary(), problem.source)
    yield with_evidence(with_added(problem, found.added), found.evidence)

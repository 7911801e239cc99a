"""Validation of a set: streaming, concurrent and resumable.

The set is read twice. The first pass counts its tests, to find those in many problems. In the second pass
each problem is validated on one of a few threads and written in the order of the set. Memory contains at most
a small multiple of the threads in problems.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from whetstone.core.problem import Problem
from whetstone.data.dataset import open_problems, transform
from whetstone.data.decisions import ProblemDecision
from whetstone.data.files import no_problems
from whetstone.data.resumable import ResumableFindings, in_order
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import FAILS_CHECK
from whetstone.data.validate.runs import JudgesPrograms, Runs
from whetstone.data.validate.shared_tests import SharedTests
from whetstone.data.validate.validator import ValidationOutcome, Validator, settle

# A thread judges one program at a time and also works itself, so a worker needs several to be busy.
_THREADS_PER_WORKER = 4

Watch = Callable[[Problem, ValidationOutcome], None]


class ValidationTally(Struct):
    """The counted decisions of a validation."""

    problems: int = 0
    kept: int = 0
    dropped: int = 0
    amiss: int = 0
    kept_amiss: int = 0
    unconfirmed: int = 0
    mutants: int = 0
    mutants_refused: int = 0
    # msgspec copies only built-in defaults. A plain `Counter()` would be shared by all tallies.
    drops: Counter[str] = field(default_factory=Counter[str])
    marks: Counter[str] = field(default_factory=Counter[str])

    def add(self, outcome: ValidationOutcome, decisions: Sequence[ProblemDecision]) -> None:
        """Count a problem."""
        self.problems += 1
        dropped = any(decision.action == "drop" for decision in decisions)
        defective = any(decision.reason in FAILS_CHECK for decision in decisions)
        self.amiss += dropped or defective
        self.kept_amiss += defective and not dropped
        if outcome.strength is not None:
            self.mutants += outcome.strength.tried
            self.mutants_refused += outcome.strength.killed
        for decision in decisions:
            if decision.action == "mark":
                self.marks[decision.reason] += 1
                continue
            dropped = decision.action == "drop"
            self.dropped += dropped
            self.kept += not dropped
            self.unconfirmed += decision.reason == "unconfirmed"
            if dropped:
                self.drops[decision.reason] += 1


def count_tests(source: str | Path, progress: Callable[[], None] = lambda: None) -> SharedTests:
    """Read a set and count the problems of each test. Raises UserError for an empty set."""
    shared = SharedTests()
    for problem in open_problems(source):
        shared.add(problem)
        progress()
    if not shared.problems:
        raise no_problems(source)
    return shared


def journal_path(out: str | Path) -> Path:
    """Return the journal file of an unfinished validation to ``out``."""
    return Path(out).with_name(f"{Path(out).name}.validating.jsonl")


def validate_set(
    source: str | Path,
    judge: JudgesPrograms,
    policy: Policy,
    shared: SharedTests,
    *,
    out: str | Path | None = None,
    workers: int = 0,
    environment: str = "",
    watch: Watch = lambda problem, outcome: None,
) -> ValidationTally:
    """Validate a set and count the decisions.

    shared: of the same set (``count_tests``). out: a dataset folder or a problem file for the kept problems
    and their decisions; an interrupted run is resumed. workers: of the judge, 0 for one per core.
    environment: the packages of programs; a run with others is not resumed. watch: called with every
    validated problem, in order.
    """
    tally = ValidationTally()
    runs = Runs(judge, policy.judge_attempts)
    validator = Validator(runs, policy, shared)
    threads = _THREADS_PER_WORKER * (workers or len(os.sched_getaffinity(0)))
    written = ValidationJournal(journal_path(out), policy, shared.problems, environment) if out else None
    with written or nullcontext() as journal:

        def step(problems: Iterator[Problem]) -> Iterator[Problem | ProblemDecision]:
            with closing(in_order(problems, validator.validate, runs.stop, threads, journal)) as validated:
                for problem, outcome in validated:
                    settled = list(settle(problem, outcome, policy))
                    tally.add(outcome, [item for item in settled if isinstance(item, ProblemDecision)])
                    yield from settled
                    watch(problem, outcome)

        if out is not None:
            transform(source, out, step)
        else:
            deque(step(open_problems(source)), maxlen=0)
        if journal is not None:
            journal.remove()
    return tally


class _Begun(Struct, frozen=True):
    """The first line of the journal: the policy, the number of problems, and the packages for programs."""

    policy: dict[str, Any]
    problems: int
    environment: str


class ValidationJournal(ResumableFindings[ValidationOutcome]):
    """A context manager over the file. Raises UserError if another run has locked it or began it with other
    settings."""

    def __init__(self, path: Path, policy: Policy, problems: int, environment: str = "") -> None:
        begun = _Begun(policy.model_dump(mode="json"), problems, environment)
        super().__init__(path, begun, ValidationOutcome, work="validation", how="policy or environment")

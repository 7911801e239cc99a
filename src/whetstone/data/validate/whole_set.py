"""Validating a set: streamed, many problems in flight, resumable.

The set is read twice. The first time its tests are counted, to see which stand in many problems; the
second time each problem is validated on one of a few threads, and comes out in the order of the set. At
no time are more problems in memory than a small multiple of the threads.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, field

from whetstone.data.dataset import open_problems, transform
from whetstone.data.decisions import Decision, encode_decision
from whetstone.data.resuming import in_order
from whetstone.data.validate.journal import Journal
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import NOT_AS_MEANT
from whetstone.data.validate.runs import JudgesPrograms, Runs
from whetstone.data.validate.shared_tests import SharedTests
from whetstone.data.validate.validator import Outcome, Validator, settle
from whetstone.errors import UserError
from whetstone.outputs import replacing, write_all
from whetstone.problem import Problem

_THREADS_PER_WORKER = 4

Watch = Callable[[Problem, Outcome], None]


class Tally(Struct):
    """What a validation decided, counted."""

    problems: int = 0
    kept: int = 0
    dropped: int = 0
    amiss: int = 0
    unconfirmed: int = 0
    mutants: int = 0
    mutants_refused: int = 0
    # A plain `Counter()` would be one for all tallies: msgspec copies built-in defaults only.
    drops: Counter[str] = field(default_factory=Counter[str])
    marks: Counter[str] = field(default_factory=Counter[str])

    def add(self, outcome: Outcome, decisions: Sequence[Decision]) -> None:
        """Count a problem."""
        self.problems += 1
        self.amiss += any(d.action == "drop" or d.reason in NOT_AS_MEANT for d in decisions)
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
    """Read a set and count in how many of its problems each test stands. UserError for an empty set."""
    shared = SharedTests()
    for problem in open_problems(source):
        shared.add(problem)
        progress()
    if not shared.problems:
        raise UserError(f"{source}: holds no problems")
    return shared


def journal_path(out: str | Path) -> Path:
    """Where an unfinished validation to ``out`` keeps what it has found."""
    return Path(out).with_name(f"{Path(out).name}.validating.jsonl")


def validate_set(
    source: str | Path,
    judge: JudgesPrograms,
    policy: Policy,
    shared: SharedTests,
    *,
    out: str | Path | None = None,
    decisions: str | Path | None = None,
    workers: int = 0,
    environment: str = "",
    watch: Watch = lambda problem, outcome: None,
) -> Tally:
    """Validate a set and count what was decided.

    ``shared`` is of the same set (``count_tests``). With ``out``, a dataset folder or a problem file, the
    kept problems are written there, with their decisions, and an interrupted run goes on where it was.
    ``decisions`` is a file of all decisions, there at the end. ``workers`` are those of the judge, 0 for one
    a core; ``environment`` names the packages of programs, with others of which no run is gone on with.
    ``watch`` is called with every problem that is done, in order.
    """
    tally = Tally()
    runs = Runs(judge, policy.judge_attempts)
    validator = Validator(runs, policy, shared)
    threads = _THREADS_PER_WORKER * (workers or len(os.sched_getaffinity(0)))
    with ExitStack() as stack:
        journal = Journal(journal_path(out), policy, shared.problems, environment) if out else None
        if journal is not None:
            stack.enter_context(journal)
        sink: BinaryIO | None = None
        if decisions:
            sink = stack.enter_context(stack.enter_context(replacing(decisions)).open("wb", buffering=0))

        def step(problems: Iterator[Problem]) -> Iterator[Problem | Decision]:
            with closing(in_order(problems, validator.validate, runs.stop, threads, journal)) as validated:
                for problem, outcome in validated:
                    settled = list(settle(problem, outcome, policy))
                    rows = [item for item in settled if isinstance(item, Decision)]
                    tally.add(outcome, rows)
                    if sink is not None:
                        write_all(sink, b"".join(map(encode_decision, rows)))
                    yield from settled
                    watch(problem, outcome)

        if out is None:
            deque(step(open_problems(source)), maxlen=0)
        else:
            transform(source, out, step)
        if journal is not None:
            journal.remove()
    return tally

"""Programs that tests should reject: mutants of a reference, programs known to be wrong, and samples."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from whetstone.core.problem import Limits, Problem, Program
from whetstone.data.validate.mutants import mutants
from whetstone.data.validate.runs import Runs, is_python
from whetstone.judge import Verdict
from whetstone_curation.strengthen.answers import with_cpu_limit
from whetstone_curation.strengthen.subtle_mutations import subtle_operators

# CPU time of a mutant: a multiple of what the reference needs, and never less than this.
_SLOWER, _LEAST_CPU_S = 10, 0.3
# Samples of a problem that vote.
_SAMPLES = 16


class Fault(Struct, frozen=True):
    """A program that tests should reject. limits: those it is run under here. accepted: whether the present
    tests accept it. confirm: whether it is rejected if it is too slow. lacks_statement: whether it is the
    reference without a statement."""

    name: str
    program: Program
    limits: Limits
    accepted: bool = True
    confirm: bool = False
    lacks_statement: bool = False


class FaultFinder:
    """Finds the faults of a problem. slowest_s: CPU seconds of the slowest test of its references."""

    def __init__(self, problem: Problem, slowest_s: float, runs: Runs) -> None:
        self._problem, self._runs = problem, runs
        self._limits = with_cpu_limit(problem.limits, max(_SLOWER * slowest_s, _LEAST_CPU_S))

    def mutants(self, reference: Program, count: int, seed: str) -> tuple[int, list[Fault], list[Fault]]:
        """Return how many mutants were tried, those that the tests accept, and those that they reject, but
        not because of the time."""
        if not is_python(reference):
            return 0, [], []
        problem: Problem = msgspec.structs.replace(self._problem, limits=self._limits)
        tried, survivors, rejected, names = 0, list[Fault](), list[Fault](), Counter[str]()
        usual = mutants(reference.source, count, seed)
        subtle = mutants(reference.source, count // 2, seed, subtle_operators)
        for mutant in (*usual, *subtle):
            program = Program(reference.language, mutant.source)
            judgement = self._runs.run(
                problem, program, stop_at_first_failure=True, confirm_time_limit=False, fork_per_case=False
            )
            if judgement.verdict is Verdict.JUDGE_ERROR:
                continue
            tried += 1
            if judgement.verdict is Verdict.TIME_LIMIT:
                continue
            names[mutant.change] += 1
            number = f", {names[mutant.change]}" if names[mutant.change] > 1 else ""
            removed = mutant.kind == "statement"
            name = f"a mutant ({mutant.change}{number})"
            fault = Fault(name, program, self._limits, judgement.accepted, lacks_statement=removed)
            (survivors if judgement.accepted else rejected).append(fault)
        return tried, survivors, rejected

    def accepted_samples(self, samples: Sequence[Program]) -> list[Fault]:
        """Return the different programs without a label that the tests accept."""
        programs = {program.source: program for program in samples}
        return [
            Fault(f"sample[{number}]", program, self._limits)
            for number, program in enumerate(itertools.islice(programs.values(), _SAMPLES))
            if self._runs.run(self._problem, program, stop_at_first_failure=True).accepted
        ]

    def accepted_wrong(self, known: Sequence[Program]) -> list[Fault]:
        """Return the programs that are known to be wrong, and accepted."""
        return [
            Fault(f"wrong[{number}]", program, self._problem.limits, confirm=True)
            for number, program in enumerate(known)
            if self._runs.run(self._problem, program, stop_at_first_failure=True).accepted
        ]

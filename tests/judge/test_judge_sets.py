"""Real sets: every reference solution is accepted, and every mutant that its own test refutes is not."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.judge.mutants import mutants, plainly_right
from tests.judge.shared_sets import humaneval, mbpp, shared_folder
from whetstone.core.problem import Limits, Problem
from whetstone.judge import Judge, Program

_SEED = 20260
_MUTATED_PROBLEMS = 40
_MUTANTS_EACH = 3


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    folder = shared_folder()
    if folder is None:
        pytest.skip("no shared data beside the repository; point WHETSTONE_SHARED at its folder")
    return humaneval(folder) + mbpp(folder)


def test_every_reference_solution_is_accepted(judge: Judge, problems: list[Problem]) -> None:
    assert len(problems) == 591
    judged = list(judge.judge_many((problem, problem.references[0]) for problem in problems))
    refused = {p.id: (j.verdict, j.reason) for p, j in zip(problems, judged, strict=True) if not j.accepted}
    assert refused == {}
    assert [p.id for p, j in zip(problems, judged, strict=True) if j.shared_interpreter] == []


def test_no_mutant_that_its_own_test_refutes_is_accepted(judge: Judge, problems: list[Problem]) -> None:
    """The plain run of program and test in one interpreter says which mutants are wrong."""
    chosen = random.Random(_SEED)
    pairs = list(_mutated(chosen.sample(problems, _MUTATED_PROBLEMS), chosen))
    assert len(pairs) > _MUTATED_PROBLEMS
    judged = list(judge.judge_many(pairs))
    accepted = [pair for pair, j in zip(pairs, judged, strict=True) if j.accepted]
    # A mutant may be right by chance; then the plain run agrees.
    assert [p.id for p, program in accepted if not plainly_right(p, program.source)] == []
    rejected = len(pairs) - len(accepted)
    assert rejected > len(pairs) // 2
    disagreeing = [
        (pair[0].id, j.reason)
        for pair, j in list(zip(pairs, judged, strict=True))[::6]
        if not j.accepted and j.verdict != "time_limit" and plainly_right(pair[0], pair[1].source)
    ]
    assert disagreeing == []


def _mutated(problems: list[Problem], chosen: random.Random) -> Iterator[tuple[Problem, Program]]:
    for problem in problems:
        for source in mutants(problem.references[0].source, _MUTANTS_EACH, chosen):
            # A mutant that loops must not cost ten seconds, twice.
            limited = Problem(problem.id, "", problem.tests, references=problem.references, limits=_fast())
            yield limited, Program("python", source)


def _fast() -> Limits:
    return Limits(cpu_s=1.0)

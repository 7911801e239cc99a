"""Real sets: every reference solution is accepted, and every mutant that its own test refutes is not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.judge.shared_sets import humaneval, mbpp, shared_folder
from tests.other_pythons import SERIES, empty_environment, other_python
from whetstone.core.problem import AssertTests, Limits, Problem
from whetstone.data.validate.mutants import mutants
from whetstone.judge import Judge, Program

_FAST = Limits(cpu_s=1.0)
_SEED = 20260
_MUTATED_PROBLEMS = 40
_MUTANTS_EACH = 3


def plainly_right(problem: Problem, source: str) -> bool:
    """Program and test in one plain interpreter, as the benchmark itself runs them."""
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    if tests.check:
        code = f"{source}\n{tests.check}\ncheck({tests.entry_point})\n"
    else:
        code = "\n".join([source, tests.setup, *(tests.asserts or [])])
    try:
        run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, timeout=300)
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


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


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.parametrize("series", SERIES)
def test_every_reference_solution_is_accepted_under_every_version_of_python(
    problems: list[Problem], series: str, tmp_path: Path
) -> None:
    """By the calls of the judge, and in a test process: a statement in the setup needs one."""
    os.chmod(tmp_path, 0o755)
    environment = empty_environment(other_python(series), tmp_path / "other")
    apart = [
        replace(p, tests=replace(p.tests, setup=f"{p.tests.setup}\napart = 1"))
        for p in problems
        if isinstance(p.tests, AssertTests)
    ]
    with Judge(2, environment=environment) as judge:
        for chosen in (problems, apart):
            judged = judge.judge_many((problem, problem.references[0]) for problem in chosen)
            refused = {p.id: j.reason for p, j in zip(chosen, judged, strict=True) if not j.accepted}
            assert refused == {}


def test_no_mutant_that_its_own_test_refutes_is_accepted(judge: Judge, problems: list[Problem]) -> None:
    """The plain run of program and test in one interpreter says which mutants are wrong."""
    chosen = random.Random(_SEED)
    pairs = list(_mutated(chosen.sample(problems, _MUTATED_PROBLEMS)))
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


def _mutated(problems: list[Problem]) -> Iterator[tuple[Problem, Program]]:
    for problem in problems:
        # A mutant that loops must not cost ten seconds, twice.
        limited = Problem(problem.id, "", problem.tests, references=problem.references, limits=_FAST)
        for mutant in mutants(problem.references[0].source, _MUTANTS_EACH, problem.id):
            yield limited, Program("python", mutant.source)

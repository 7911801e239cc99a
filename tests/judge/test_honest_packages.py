"""Honest programs that import the competition packages are accepted on every tier, whatever way they do it.

The limit is a usual one: what plain Python fits into, a program fits into here.
"""

from __future__ import annotations

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import python, stdin_problem
from whetstone.core.verdict import Verdict
from whetstone.judge import Judge
from whetstone.judge.environments.environment import COMPETITION, default_environment

pytestmark = pytest.mark.skipif(
    set(default_environment().preload) != set(COMPETITION), reason="the extra `programs` is not installed"
)
PROBLEM = stdin_problem(("5\n", "10"), limits={"cpu_s": 10.0, "memory_mb": 256.0, "output_mb": 1.0})

DATA = data_beside(__file__)
# All print twice the number that they read.
PROGRAMS: dict[str, str] = DATA["programs"]


@pytest.mark.drawn(8)
@pytest.mark.process
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_imports_packages_is_accepted(tier_judge: Judge, name: str) -> None:
    judgement = tier_judge.judge(PROBLEM, python(PROGRAMS[name]))
    assert judgement.accepted, judgement


@pytest.mark.process
def test_a_package_tells_its_version(tier_judge: Judge) -> None:
    if tier_judge.isolation == "restricted":
        pytest.skip("folders of packages cannot be listed there: others would be seen in them")
    source = (
        "from importlib.metadata import version\nassert version('numpy') == __import__('numpy').__version__"
    )
    judgement = tier_judge.judge(PROBLEM, python(f"{source}\nprint(int(input()) * 2)"))
    assert judgement.accepted, judgement


@pytest.mark.process
def test_preloaded_memory_is_not_counted_and_allocated_memory_is(tier_judge: Judge) -> None:
    held = "import numpy as np\nx = np.ones({} << 17)\nprint(int(input()) * 2)"
    assert tier_judge.judge(PROBLEM, python(held.format(200))).accepted
    judgement = tier_judge.judge(PROBLEM, python(held.format(290)))
    assert judgement.verdict is Verdict.MEMORY_LIMIT, judgement

"""Honest programs that import the competition packages are accepted on every tier, whatever way they do it.

The limit is a usual one: what plain Python fits into, a program fits into here.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import python, stdin_problem
from whetstone.core.errors import SandboxUnavailable
from whetstone.core.verdict import Verdict
from whetstone.judge import Judge
from whetstone.judge.environments.environment import COMPETITION, default_environment
from whetstone.sandbox import Tier

pytestmark = pytest.mark.skipif(
    set(default_environment().preload) != set(COMPETITION), reason="the extra `programs` is not installed"
)
PROBLEM = stdin_problem(("5\n", "10"), limits={"cpu_s": 10.0, "memory_mb": 256.0, "output_mb": 1.0})

DATA = data_beside(__file__)
# All print twice the number that they read.
PROGRAMS: dict[str, str] = DATA["programs"]


@pytest.fixture(scope="module", params=list(Tier), ids=lambda tier: tier.label)
def tiered(request: pytest.FixtureRequest) -> Iterator[Judge]:
    try:
        judge = Judge(workers=1, tier=request.param.label)
    except SandboxUnavailable as refused:
        pytest.skip(str(refused))
    with judge:
        yield judge


@pytest.mark.process
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_imports_packages_is_accepted(tiered: Judge, name: str) -> None:
    judgement = tiered.judge(PROBLEM, python(PROGRAMS[name]))
    assert judgement.accepted, judgement


@pytest.mark.process
def test_a_package_tells_its_version(tiered: Judge) -> None:
    if tiered.isolation == "restricted":
        pytest.skip("folders of packages cannot be listed there: others would be seen in them")
    source = (
        "from importlib.metadata import version\nassert version('numpy') == __import__('numpy').__version__"
    )
    judgement = tiered.judge(PROBLEM, python(f"{source}\nprint(int(input()) * 2)"))
    assert judgement.accepted, judgement


@pytest.mark.process
def test_preloaded_memory_is_not_counted_and_allocated_memory_is(tiered: Judge) -> None:
    held = "import numpy as np\nx = np.ones({} << 17)\nprint(int(input()) * 2)"
    assert tiered.judge(PROBLEM, python(held.format(200))).accepted
    judgement = tiered.judge(PROBLEM, python(held.format(290)))
    assert judgement.verdict is Verdict.MEMORY_LIMIT, judgement

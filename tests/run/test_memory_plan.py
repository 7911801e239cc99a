"""The planned memory of a run is what it takes, and what cannot fit is refused with a remedy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.run.memory_cases import CASES, SHARDED, measured, planned
from tests.trainer.rank_processes import on_ranks
from whetstone.run.memory_plan import GENERATION


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", CASES)
def test_the_planned_peak_is_within_a_tenth_of_the_measured_one(name: str) -> None:
    plan, found = planned(CASES[name]), measured(CASES[name])
    step = max(bytes for phase, bytes in plan.items() if phase != GENERATION)
    print(
        name,
        {k: v / 1e6 for k, v in plan.items()},
        found,
        step / found["step"],
        plan[GENERATION] / found[GENERATION],
    )
    assert max(plan.values()) == pytest.approx(max(found.values()), rel=0.1)
    assert step == pytest.approx(found["step"], rel=0.1)


@pytest.mark.process
@pytest.mark.parametrize("name", SHARDED)
def test_the_planned_peak_of_a_rank_is_within_a_tenth_of_the_measured_one(name: str) -> None:
    plan = planned(SHARDED[name], ranks=2)
    step = max(bytes for phase, bytes in plan.items() if phase != GENERATION)
    for found in on_ranks(2, lambda ranks: measured(SHARDED[name], ranks)):
        print(name, plan, found, step / found["step"])
        assert step == pytest.approx(found["step"], rel=0.1)

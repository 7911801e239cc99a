"""A run says early how long it will take in all, from what it has measured of itself."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from whetstone.run.display import Display, PartnerDisplay


class WatchedSandbox:
    """A display whose clock a test moves, and the steps and evaluations of a run."""

    def __init__(self, steps: int, evaluations: int) -> None:
        self.now, self.out, self.steps = 0.0, io.StringIO(), steps
        self.display = Display(Console(file=self.out, width=200), clock=lambda: self.now)
        self.display.plan(steps, evaluations)
        self._step = 0

    def evaluate(self, seconds: float, parts: int = 20) -> list[str]:
        self.display.on_evaluation(0.0)
        said: list[str] = []
        for part in range(1, parts + 1):
            self.now += seconds / parts
            said += self._new(lambda part=part: self.display.on_evaluation(part / parts))
        return said

    def step(self, seconds: float) -> list[str]:
        self.now += seconds
        self._step += 1
        clock = {"step": seconds, "generate": seconds / 2, "train": seconds / 2}
        record = {
            "step": self._step,
            "length/mean": 1.0,
            "group/trained": 1,
            "group/sampled": 1,
            "time": clock,
        }
        return [
            line
            for line in self._new(lambda: self.display.on_step(record, self.steps))
            if "step " not in line
        ]

    def _new(self, act: object) -> list[str]:
        before = len(self.out.getvalue())
        assert callable(act)
        act()
        return self.out.getvalue()[before:].splitlines()


def minutes(line: str) -> float:
    found = re.search(r"about (\d+) min", line)
    assert found is not None, line
    return float(found.group(1))


def test_the_total_is_steps_and_evaluations_at_their_measured_rates() -> None:
    run = WatchedSandbox(steps=30, evaluations=3)
    run.now = 60.0  # a warm-up
    run.display.plan(30, 3)
    assert run.evaluate(300) == ["estimated time of all 3 evaluations: about 15 min"]
    said = [line for _ in range(4) for line in run.step(20)]
    # 60 s before, 300 s of the first evaluation, 30 steps of 20 s, two more evaluations of 300 s
    assert said == ["estimated total: about 26 min (28 steps of 20 s, 2 evaluations of 5 min to go)"]


def test_an_estimate_of_evaluations_comes_before_the_first_one_ends() -> None:
    run = WatchedSandbox(steps=30, evaluations=3)
    run.display.on_evaluation(0.0)
    run.now = 20
    run.display.on_evaluation(0.1)
    assert minutes(run.out.getvalue()) == 10


def test_steady_steps_bring_one_estimate() -> None:
    run = WatchedSandbox(steps=100, evaluations=0)
    said = [line for _ in range(100) for line in run.step(10)]
    assert len(said) == 1
    assert minutes(said[0]) == 17


@pytest.mark.parametrize("steps", [20, 100])
def test_it_is_refined_at_most_twice(steps: int) -> None:
    run = WatchedSandbox(steps=steps, evaluations=0)
    said = [line for number in range(steps) for line in run.step(10 * 1.2**number)]
    assert 1 < len(said) <= 3


def test_a_run_that_soon_ends_has_no_estimate() -> None:
    run = WatchedSandbox(steps=5, evaluations=2)
    said = run.evaluate(2) + [line for _ in range(5) for line in run.step(1)] + run.evaluate(2)
    assert said == []


def test_later_evaluations_count_and_take_no_time_from_the_steps() -> None:
    run = WatchedSandbox(steps=40, evaluations=3)
    run.evaluate(100)
    for _ in range(9):
        run.step(10)
    run.evaluate(700)  # far longer than the first
    said = run.step(10)
    assert said == ["estimated total: about 27 min (30 steps of 10 s, 1 evaluation of 7 min to go)"]


def test_a_step_line_counts_as_a_line_about_the_training() -> None:
    run = WatchedSandbox(steps=100, evaluations=0)
    run.display.begin("training", 100)
    for _ in range(30):
        run.now += 4
        run.display.progress.tick()
        run.step(4)
    assert "training:" not in run.out.getvalue()


def test_of_two_models_one_estimates() -> None:
    run = WatchedSandbox(steps=5, evaluations=0)
    beside = PartnerDisplay("verifier", run.display)
    beside.plan(100, 3)
    beside.on_evaluation(0.0)
    run.now = 1000
    beside.on_evaluation(1.0)
    assert run.out.getvalue() == ""

"""Advice about staleness against the simulated flow: what was measured is what was simulated, and with each
advised setting the simulation reaches about 0.95 of the throughput bound."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.flow_simulation import TOKENS_PER_S, Setting, Simulation
from tests.report.synthetic_run import write_run
from whetstone.report.pace import measured_flow
from whetstone.report.run_data import read_run
from whetstone.report.run_page import run_page
from whetstone.rollout.flow_rules import BatchComposition
from whetstone.rollout.pace import LEAST_GROUPS, TARGET, MeasuredFlow, ReplyClock

STEPS = 90
NEARLY = 0.92
"""The simulation varies by chance, and its weights arrive a little after a step."""


def measured(simulation: Simulation) -> tuple[float, MeasuredFlow]:
    """The seconds of a token, and what a run of this simulation measures in its later steps."""
    setting, first = simulation.setting, len(simulation.batches) // 4
    clock, token_s = ReplyClock(), 0.0
    longest: list[int] = []
    flying: Counter[int] = Counter()
    reasons: Counter[str] = Counter()
    for version, record in enumerate(simulation.batches[:-1], 1):
        replies = [reply for item in record.groups for reply in item.facts.tokens]
        token_s = clock.add(version, simulation.arrivals[version], replies) or token_s
        for item in record.groups if version > first else ():
            reasons["trained" if not item.drop_reason else item.drop_reason] += 1
            longest.append(max(item.facts.lengths))
            assert item.oldest is not None
            assert item.newest is not None
            flying.update(range(item.oldest + 1, item.newest + 1))
    usable = reasons.total() - reasons["stale"]
    steps = len(simulation.batches) - 1 - first
    step_s = (simulation.arrivals[-1] - simulation.arrivals[-1 - steps]) / steps
    durations = [tokens * token_s for tokens in longest]
    return token_s, MeasuredFlow(
        rule=setting.rule,
        staleness=setting.staleness,
        prompts=setting.prompts,
        durations=durations,
        in_flight=max(sum(durations) / steps / step_s, *flying.values()),
        without_signal=1 - reasons["trained"] / usable,
        step_s=step_s,
        train_s=setting.step_s,
    )


def simulated(setting: Setting, steps: int = STEPS) -> tuple[Simulation, float]:
    """The simulation, and the smaller of its throughputs of groups and of tokens."""
    simulation = Simulation(setting)
    figures = simulation.run(steps)
    return simulation, min(figures.groups, figures.tokens)


def setting_of(rule: BatchComposition, bound: Any, **values: Any) -> Setting:
    given: dict[str, Any] = {"slots": 64, "prompts": 32, "staleness": 2, "limit": 4.0}
    return Setting(**given | values, bound=bound, rule=rule)


@pytest.mark.extended
@pytest.mark.parametrize("rule", ["wait", "mask", "drop"])
@pytest.mark.parametrize("bound", ["generation", "training"])
def test_what_is_advised_reaches_the_target_in_the_simulation(rule: BatchComposition, bound: str) -> None:
    setting = setting_of(rule, bound)
    simulation, reached = simulated(setting)
    assert reached < TARGET - 0.1
    token_s, flow = measured(simulation)
    assert token_s * TOKENS_PER_S == pytest.approx(1, abs=0.1)
    # As many replies at once as the engines write in truth: they were not full while batches waited.
    flow = msgspec.structs.replace(flow, in_flight=setting.slots)
    assert not flow.keeps_pace()
    advised = flow.remedies()
    assert advised.keys() == {"staleness", "prompts", "in_flight"}
    for name, value in advised.items():
        changed = {"slots" if name == "in_flight" else name: value}
        # With fewer replies at once, generation is the bottleneck.
        other = replace(setting, **changed, bound="generation" if name == "in_flight" else setting.bound)
        assert simulated(other)[1] > NEARLY, (name, value)


@pytest.mark.parametrize("staleness", [1, 2])
def test_tokens_are_timed_although_batches_wait(staleness: int) -> None:
    simulation, _ = simulated(setting_of("wait", "generation", slots=16, prompts=8, staleness=staleness))
    token_s, flow = measured(simulation)
    assert token_s * TOKENS_PER_S == pytest.approx(1, abs=0.15)
    assert flow.reached() < 0.9
    assert dict(flow.advice()).keys() == {"replies", "throughput", "0.95 needs", "this assumes"}


def test_a_run_with_short_replies_gets_no_other_settings() -> None:
    simulation, _ = simulated(setting_of("wait", "generation", slots=16, prompts=16, staleness=8))
    _, flow = measured(simulation)
    said = dict(flow.advice())
    assert said["staleness"] == "replies do not outlast it: no other value would help"
    assert "0.95 needs" not in said


def test_too_few_ended_replies_give_no_advice() -> None:
    flow = MeasuredFlow("wait", 1, 8, [1.0] * (LEAST_GROUPS - 1), 8.0, 0.2, 1.0, 0.5)
    assert list(flow.advice()) == []
    assert list(msgspec.structs.replace(flow, durations=[1.0] * LEAST_GROUPS).advice())


def test_a_run_at_its_bound_names_the_settings_for_more_prompts_in_flight() -> None:
    flow = MeasuredFlow("wait", 2, 4, [0.5] * 100, 10.0, 0.0, 0.2, 0.05)
    assert flow.reached() == 1
    assert dict(flow.advice())["more prompts in flight need"].startswith("`flow.staleness: ")


def test_a_clock_knows_nothing_of_replies_within_a_version() -> None:
    clock = ReplyClock()
    assert [clock.add(version, float(version), [{version - 1: 5}]) for version in range(1, 9)] == [None] * 8
    spanning = [{version - 2: 3, version - 1: 10} for version in range(9, 15)]
    timed = [clock.add(version, float(version), [spanning[version - 9]]) for version in range(9, 15)]
    assert timed[-1] == pytest.approx(0.1, abs=0.03)


def test_a_folder_without_staleness_or_with_few_steps_has_no_advice(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, steps=6))
    assert measured_flow(tmp_path, run.recipe, run.train) is None
    flow = {"flow": {"staleness": 2, "batch_composition": "wait"}}
    assert measured_flow(tmp_path, run.recipe | flow, run.train) is None
    timed = [{**each, "time": each["time"] | {"token_s": 0.01}} for each in run.train]
    assert measured_flow(tmp_path, run.recipe | flow, timed) is None


def test_the_page_of_a_run_that_waits_for_long_replies_has_a_remedy(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, steps=20))
    recipe = run.recipe | {"flow": {"staleness": 1, "batch_composition": "wait"}}
    train = [{**each, "time": each["time"] | {"token_s": 0.5}} for each in run.train]
    [panel] = [
        panel
        for panel in run_page(replace(run, recipe=recipe, train=train), {})["panels"]
        if panel.title == "Staleness and throughput"
    ]
    [needed] = [text for title, text in panel.rows if title.endswith(" need") or title.endswith(" needs")]
    assert "`flow.staleness: " in needed

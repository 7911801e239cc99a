"""Who waits is named, with what it waits for; every prompt is accounted for."""

from __future__ import annotations

from tests.rollout.doubles import finish, started, take
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.status import Activity, accounts, batch_wait_reason, stalls, status_of

RULES = FlowRules(prompts_per_step=2, staleness=1, refill_rounds=2, most_failures=1)


def test_a_late_batch_names_the_dropped_groups_and_every_prompt_is_accounted_for() -> None:
    scheduler = started(RULES)
    grants = take(scheduler, "r", 4)
    for grant, rewards in zip(grants, ([0.0, 0.0], [1.0, 1.0], [0.0, 1.0]), strict=False):
        finish(scheduler, "r", grant, rewards)
    said = batch_wait_reason(scheduler, "policy", 5.0)
    assert "1 of 2 groups are ready and 2 were dropped (2 zero_variance)" in said
    assert accounts(scheduler.state, "policy") == {
        "trained": 0,
        "zero_variance": 2,
        "buffered": 1,
        "under_way": 1,
    }
    last = grants[3]
    [prompt] = status_of(scheduler, {"policy": Activity("waits", 0.0)}, {}, 7.0)["replicas"]["r"]["prompts"]
    assert prompt == {"draw": last.draw, "problem": scheduler.problem(last.draw), "since_s": 7.0}
    scheduler.give_back("r", [last.serial], "failed", count_failure=True)
    finish(scheduler, "r", take(scheduler, "r", 4)[0])
    assert scheduler.next_batch("policy", 0) is not None
    where = accounts(scheduler.state, "policy")
    assert {name: where[name] for name in ("trained", "zero_variance", "abandoned")} == {
        "trained": 2,
        "zero_variance": 2,
        "abandoned": 1,
    }
    assert sum(where.values()) == scheduler.state.drawn


def test_replicas_that_have_had_nothing_for_long_name_the_trainer_that_does_not_go_on() -> None:
    scheduler = started(RULES)
    for replica in ("r", "s"):
        take(scheduler, replica, 2)
    trainers = {"policy": Activity("trains on the batch of version 7", 10.0)}
    assert stalls(scheduler, trainers, {"r": 20.0}, 100.0, 60.0) == []
    assert stalls(scheduler, trainers, {"r": 20.0, "s": 50.0}, 100.0, 60.0) == []
    [said] = stalls(scheduler, trainers, {"r": 20.0, "s": 30.0}, 100.0, 60.0)
    assert said.startswith(
        "no replica (r, s) has a prompt, 70 s: the trainer of policy trains on the batch of"
    )

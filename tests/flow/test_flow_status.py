"""Who waits is named, with what it waits for; every prompt is accounted for."""

from __future__ import annotations

from whetstone.flow.desk import Delivery, Desk
from whetstone.flow.facts import Facts
from whetstone.flow.memory_log import MemoryLog
from whetstone.flow.rules import Rules
from whetstone.flow.source import PromptSource
from whetstone.flow.status import Activity, accounts, stalls, status_of, what_a_batch_waits_for

RULES = Rules(prompts_per_step=2, staleness=1, refill_rounds=2, most_failures=1)


def working_desk() -> Desk:
    desk = Desk(RULES, PromptSource(["p", "q"], 0), MemoryLog(), 0.0)
    desk.resumed("policy", 0, 0, [])
    return desk


def finish(desk: Desk, serial: int, draw: int, rewards: list[float | None]) -> None:
    facts = Facts(desk.problem(draw), "s", "", rewards, [1, 2], 0, 0)
    assert desk.deliver("r", Delivery(serial, draw, {"policy": (facts, b"x")}), 5.0) == "taken"


def test_a_batch_that_is_long_in_coming_says_what_was_dropped_and_every_prompt_is_somewhere() -> None:
    desk = working_desk()
    grants = desk.take("r", holding=[], room=4, versions={"policy": 0}, now=0.0).leases
    for grant, rewards in zip(grants, ([0.0, 0.0], [1.0, 1.0], [0.0, 1.0]), strict=False):
        finish(desk, grant.serial, grant.draw, list(rewards))
    said = what_a_batch_waits_for(desk, "policy", 5.0)
    assert "1 of 2 groups are there and 2 were dropped (2 zero_variance)" in said
    assert accounts(desk.books, "policy") == {"trained": 0, "zero_variance": 2, "buffered": 1, "under_way": 1}
    last = grants[3]
    [prompt] = status_of(desk, {"policy": Activity("waits", 0.0)}, {}, 7.0)["replicas"]["r"]["prompts"]
    assert prompt == {"draw": last.draw, "problem": desk.problem(last.draw), "since_s": 7.0}
    desk.give_back("r", [last.serial], "failed", blamed=True)
    grants = desk.take("r", holding=[], room=4, versions={"policy": 0}, now=0.0).leases
    finish(desk, grants[0].serial, grants[0].draw, [0.0, 1.0])
    assert desk.next_batch("policy", 0) is not None
    where = accounts(desk.books, "policy")
    assert {name: where[name] for name in ("trained", "zero_variance", "abandoned")} == {
        "trained": 2,
        "zero_variance": 2,
        "abandoned": 1,
    }
    assert sum(where.values()) == desk.books.drawn


def test_replicas_that_have_had_nothing_for_long_name_the_trainer_that_does_not_go_on() -> None:
    desk = working_desk()
    for replica in ("r", "s"):
        desk.take(replica, holding=[], room=2, versions={"policy": 0}, now=0.0)
    trainers = {"policy": Activity("trains on the batch of version 7", 10.0)}
    assert stalls(desk, trainers, {"r": 20.0}, 100.0, 60.0) == []
    assert stalls(desk, trainers, {"r": 20.0, "s": 50.0}, 100.0, 60.0) == []
    [said] = stalls(desk, trainers, {"r": 20.0, "s": 30.0}, 100.0, 60.0)
    assert said.startswith(
        "no replica (r, s) has a prompt, 70 s: the trainer of policy trains on the batch of"
    )

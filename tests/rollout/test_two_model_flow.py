"""A flow of two models, one of which drops most of its groups: both get batches, and all is accounted for."""

from __future__ import annotations

from tests.rollout.group_facts_at import facts_at
from tests.rollout.memory_log import MemoryLog
from whetstone.rollout.flow_rules import FlowRules
from whetstone.rollout.group_facts import GroupFacts
from whetstone.rollout.scheduler import Delivery, FlowScheduler
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import BatchRecord, Offer

MODELS = ("coder", "verifier")
STEPS = 4
KEEPS_ONE_IN = 7
"""Of the coder's groups, as of problems that it nearly always solves."""


def groups(problem: str, draw: int, version: int) -> dict[str, tuple[GroupFacts, bytes]]:
    rewards = {"coder": [1.0, float(draw % KEEPS_ONE_IN > 0)], "verifier": [0.0, 1.0]}
    return {
        name: (facts_at(problem, "", "", [*rewards[name]], [3, 4], version), b"a group") for name in MODELS
    }


def sample(scheduler: FlowScheduler, version: int) -> None:
    """A replica takes what it is given, and finishes it."""
    versions: dict[str, int] = dict.fromkeys(MODELS, version)
    leases = scheduler.take("one", holding=[], room=3, versions=versions, now=0.0).leases
    assert leases, "nothing is left to do, and a batch is missing"
    for grant in leases:
        delivery = Delivery(grant.serial, grant.draw, groups(grant.problem, grant.draw, version))
        assert scheduler.deliver("one", delivery, 0.0) == "taken"


def test_a_model_that_drops_most_of_its_groups_gets_its_batches_beside_one_that_has_enough() -> None:
    rules = FlowRules(models=MODELS, prompts_per_step=2, staleness=1, refill_rounds=20)
    scheduler = FlowScheduler(rules, PromptSource([f"p{n}" for n in range(9)], 0), MemoryLog(), 0.0)
    batches: dict[str, list[BatchRecord]] = {name: [] for name in MODELS}
    for version in range(STEPS):
        for name in MODELS:
            scheduler.publish(name, Offer(version))
        missing = set(MODELS)
        while missing:
            for name in sorted(missing):
                if (record := scheduler.next_batch(name, version)) is not None:
                    batches[name].append(record)
                    missing.remove(name)
            if missing:
                sample(scheduler, version)
    for name, records in batches.items():
        for version, record in enumerate(records):
            trained = [item for item in record.groups if not item.drop_reason]
            assert len(trained) == rules.prompts_per_step
            assert all(0 <= version - (item.facts.oldest or 0) <= rules.staleness for item in trained)
        told = [item.draw for record in records for item in record.groups]
        model = scheduler.state.models[name]
        left = [*model.buffer, *(item.draw for item in model.dropped_groups)]
        assert sorted([*told, *left]) == list(range(scheduler.state.drawn))
    reasons = {item.drop_reason for record in batches["verifier"] for item in record.groups}
    assert reasons == {"", "stale"}


def test_a_model_that_keeps_groups_of_equal_rewards_is_not_filtered() -> None:
    rules = FlowRules(models=MODELS, prompts_per_step=2, staleness=1, unfiltered=("coder",))
    scheduler = FlowScheduler(rules, PromptSource(["p"], 0), MemoryLog(), 0.0)
    for name in MODELS:
        scheduler.publish(name, Offer(0))
    sample(scheduler, 0)
    assert len(scheduler.state.models["coder"].buffer) == 3

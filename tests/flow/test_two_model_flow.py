"""A flow of two models, one of which drops most of its groups: both get batches, and all is accounted for."""

from __future__ import annotations

from whetstone.flow.books import Offer, Record
from whetstone.flow.desk import Delivery, Desk
from whetstone.flow.facts import Facts
from whetstone.flow.memory_log import MemoryLog
from whetstone.flow.rules import Rules
from whetstone.flow.source import PromptSource

MODELS = ("coder", "verifier")
STEPS = 4
KEEPS_ONE_IN = 7
"""Of the coder's groups, as of problems that it nearly always solves."""


def groups(problem: str, draw: int, version: int) -> dict[str, tuple[Facts, bytes]]:
    rewards = {"coder": [1.0, float(draw % KEEPS_ONE_IN > 0)], "verifier": [0.0, 1.0]}
    return {
        name: (Facts(problem, "", "", [*rewards[name]], [3, 4], version, version), b"a group")
        for name in MODELS
    }


def sample(desk: Desk, version: int) -> None:
    """A replica takes what it is given, and finishes it."""
    versions: dict[str, int] = dict.fromkeys(MODELS, version)
    leases = desk.take("one", holding=[], room=3, versions=versions, now=0.0).leases
    assert leases, "nothing is left to do, and a batch is missing"
    for grant in leases:
        delivery = Delivery(grant.serial, grant.draw, groups(grant.problem, grant.draw, version))
        assert desk.deliver("one", delivery, 0.0) == "taken"


def test_a_model_that_drops_most_of_its_groups_gets_its_batches_beside_one_that_has_enough() -> None:
    rules = Rules(models=MODELS, prompts_per_step=2, staleness=1, refill_rounds=20)
    desk = Desk(rules, PromptSource([f"p{n}" for n in range(9)], 0), MemoryLog(), 0.0)
    batches: dict[str, list[Record]] = {name: [] for name in MODELS}
    for version in range(STEPS):
        for name in MODELS:
            desk.published(name, Offer(version))
        missing = set(MODELS)
        while missing:
            for name in sorted(missing):
                if (record := desk.next_batch(name, version)) is not None:
                    batches[name].append(record)
                    missing.remove(name)
            if missing:
                sample(desk, version)
    for name, records in batches.items():
        for version, record in enumerate(records):
            trained = [item for item in record.items if not item.reason]
            assert len(trained) == rules.prompts_per_step
            assert all(0 <= version - (item.facts.oldest or 0) <= rules.staleness for item in trained)
        told = [item.draw for record in records for item in record.items]
        model = desk.books.models[name]
        left = [*model.buffer, *(item.draw for item in model.aside)]
        assert sorted([*told, *left]) == list(range(desk.books.drawn))
    reasons = {item.reason for record in batches["verifier"] for item in record.items}
    assert reasons == {"", "stale"}


def test_a_model_that_keeps_groups_of_equal_rewards_is_not_filtered() -> None:
    rules = Rules(models=MODELS, prompts_per_step=2, staleness=1, unfiltered=("coder",))
    desk = Desk(rules, PromptSource(["p"], 0), MemoryLog(), 0.0)
    for name in MODELS:
        desk.published(name, Offer(0))
    sample(desk, 0)
    assert len(desk.books.models["coder"].buffer) == 3

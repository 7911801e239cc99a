"""Each rule of batch composition keeps its promise while replies of very different lengths are sampled, and
waits are explained."""

from __future__ import annotations

import heapq
import random
from typing import get_args

import pytest

from tests.rollout.doubles import finish, started, take
from whetstone.rollout.batch_composition import window_size
from whetstone.rollout.flow_rules import BatchComposition, FlowRules
from whetstone.rollout.group_facts import GroupFacts
from whetstone.rollout.ledger import unaccounted, wasted_share
from whetstone.rollout.scheduler import Delivery, LeaseGrant
from whetstone.rollout.state import BatchRecord, Offer
from whetstone.rollout.status import batch_wait_reason, token_totals

RULES = get_args(BatchComposition)


class SteadyRun:
    """Replies of one to 60 ticks on eight slots, and a trainer that needs four ticks for a step.

    A prompt begins with the weights that are served when a slot is free, as its replica reports.
    """

    def __init__(self, rule: BatchComposition, staleness: int, seed: int, flat: float = 0.2) -> None:
        """``flat``: the share of groups with equal rewards."""
        self.rng, self.flat = random.Random(seed), flat
        self.rules = FlowRules(
            prompts_per_step=4, staleness=staleness, batch_composition=rule, refill_rounds=20, lease_s=1e9
        )
        self.scheduler = started(self.rules, 9)
        self.now, self.version, self.free = 0, 0, 8
        self.queue: list[LeaseGrant] = []
        self.begun: dict[int, int] = {}
        self.running: list[tuple[int, int, LeaseGrant, int]] = []
        self.changes = [0]
        """When each version of the weights was served first."""

    def steps(self, count: int) -> list[BatchRecord]:
        """Train for so many steps; the batches."""
        batches: list[BatchRecord] = []
        busy_until = 0
        while len(batches) < count:
            assert self.now < 200_000, batch_wait_reason(self.scheduler, "policy", 0.0)
            self.take()
            while self.running and self.running[0][0] <= self.now:
                self.finish(*heapq.heappop(self.running))
            if busy_until == self.now and batches:
                self.version += 1
                self.changes.append(self.now)
                self.scheduler.publish("policy", Offer(self.version))
            if busy_until <= self.now and (record := self.scheduler.next_batch("policy", self.version)):
                batches.append(record)
                busy_until = self.now + 4
            self.now += 1
        return batches

    def take(self) -> None:
        held = [*self.scheduler.state.leases]
        progress = {serial: {"policy": (0, self.begun.get(serial, self.version))} for serial in held}
        found = self.scheduler.take(
            "r", holding=held, room=30, versions={"policy": self.version}, now=0.0, progress=progress
        )
        self.queue += found.leases
        while self.free and self.queue:
            self.free -= 1
            grant = self.queue.pop(0)
            self.begun[grant.serial] = self.version
            ticks = min(60, round(self.rng.lognormvariate(1.5, 1.0)) + 1)
            heapq.heappush(self.running, (self.now + ticks, grant.serial, grant, self.now))

    def finish(self, end: int, serial: int, grant: LeaseGrant, start: int) -> None:
        self.free += 1
        tokens: dict[int, int] = {}
        for tick in range(start, end):
            version = max(v for v, since in enumerate(self.changes) if since <= tick)
            tokens[version] = tokens.get(version, 0) + 1
        rewards: list[float | None] = [0.0, float(self.rng.random() > self.flat)]
        facts = GroupFacts(grant.problem, "", "", rewards, [tokens, {self.version: 1}], ["", ""])
        assert (
            self.scheduler.deliver("r", Delivery(serial, grant.draw, {"policy": (facts, b"x")}), 0.0)
            == "taken"
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", RULES)
def test_no_trained_token_is_older_than_the_staleness_and_every_token_is_accounted_for(
    rule: BatchComposition, seed: int
) -> None:
    run = SteadyRun(rule, staleness=2, seed=seed)
    ages: set[int] = set()
    for version, record in enumerate(run.steps(60)):
        for item in (item for item in record.groups if not item.drop_reason):
            versions = {version for reply in item.facts.tokens for version in reply}
            ages |= {version - one for one in versions if record.oldest is None or one >= record.oldest}
    assert max(ages) == 2
    totals = token_totals(run.scheduler.state, "policy")
    assert unaccounted(totals) == 0
    dropped = {name for name in totals if name.startswith("dropped/")} - {"dropped/zero_variance"}
    assert (
        dropped
        == {
            "drop": {"dropped/stale"},
            "wait": set(),
            "window": set(),
            # A group is stale if even its newest token is too old, which no reply of this run is.
            "mask": {"dropped/too_old"},
        }[rule]
    )
    wasted = wasted_share(totals)
    assert wasted is not None
    assert (wasted > 0.05) == (rule in ("drop", "mask"))


def test_with_windows_a_short_reply_overtakes_a_long_one_only_within_the_window() -> None:
    def furthest(rule: BatchComposition) -> int:
        """How many draws lie at most between a trained group and the first prompt that was not finished."""
        run, most = SteadyRun(rule, staleness=6, seed=1, flat=0.6), 0
        compose = run.scheduler.compose

        def composed(name: str) -> object:
            event = compose(name)
            if event is not None and run.scheduler.state.pending:
                nonlocal most
                most = max(most, *(draw - min(run.scheduler.state.pending) for draw in event.kept))
            return event

        run.scheduler.compose = composed  # pyright: ignore[reportAttributeAccessIssue]
        run.steps(80)
        return most

    window = window_size(FlowRules(prompts_per_step=4, staleness=6))
    assert furthest("window") < window <= furthest("wait")


def test_a_batch_that_waits_for_a_prompt_says_so() -> None:
    scheduler = started(FlowRules(prompts_per_step=2, staleness=1, batch_composition="wait"))

    def lease(version: int, held: list[int]) -> list[LeaseGrant]:
        return scheduler.take("r", holding=held, room=4, versions={"policy": version}, now=0.0).leases

    slow, *quick = lease(0, [])
    for grant in quick[:2]:
        finish(scheduler, "r", grant)
    assert scheduler.next_batch("policy", 0) is not None
    scheduler.publish("policy", Offer(1))
    for grant in [quick[2], *lease(1, [slow.serial, quick[2].serial])]:
        finish(scheduler, "r", grant, version=0 if grant is quick[2] else 1)
    assert scheduler.next_batch("policy", 1) is None
    said = batch_wait_reason(scheduler, "policy", 0.0)
    assert f"and it waits for draw {slow.draw} ({slow.problem})" in said
    assert "with r: its tokens would be too old for later batches" in said
    finish(scheduler, "r", slow)
    record = scheduler.next_batch("policy", 1)
    assert record is not None
    assert slow.draw in [item.draw for item in record.groups if not item.drop_reason]


def test_a_late_or_dead_replica_does_not_hold_up_a_batch() -> None:
    rules = FlowRules(prompts_per_step=1, staleness=1, batch_composition="wait", lease_s=50.0, silence_s=20.0)
    for fault in ("late", "dead"):
        scheduler = started(rules)
        take(scheduler, "hung", 1)
        for version in (0, 1):
            [grant] = take(scheduler, "works", 1, version)
            finish(scheduler, "works", grant, version=version)
            if version == 0:
                assert scheduler.next_batch("policy", 0) is not None
                scheduler.publish("policy", Offer(1))
        assert scheduler.next_batch("policy", 1) is None
        if fault == "late":
            scheduler.replicas["hung"].last_heard = 60.0
        scheduler.replicas["works"].last_heard = 60.0
        scheduler.expire(60.0)
        assert scheduler.next_batch("policy", 1) is not None

"""With staleness above 0: batches whose groups are dropped are refilled as often as asked, and the run ends
with a remedy when no prompt brings a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.rollout.doubles import finish, started, take
from whetstone.rollout.flow_rules import FlowRefusal, FlowRules
from whetstone.rollout.protocol import BatchPending, BatchResponse, TrainerRequest
from whetstone.rollout.remote_flow import RemoteFlow
from whetstone.rollout.state import BatchRecord, Offer

Rewards = Callable[[int], list[float | None]]


class Run:
    """A scheduler, a replica that samples at once, and how many prompts it has sampled."""

    def __init__(self, rules: FlowRules, rewards: Rewards) -> None:
        self.scheduler = started(rules, 9)
        self.rewards, self.sampled = rewards, 0

    def batch(self, version: int, patience: int) -> BatchRecord:
        self.scheduler.publish("policy", Offer(version))
        for _ in range(patience):
            if (record := self.scheduler.next_batch("policy", version)) is not None:
                return record
            [grant] = take(self.scheduler, "one", 1, version)
            finish(self.scheduler, "one", grant, self.rewards(grant.draw), version)
            self.sampled += 1
        raise AssertionError(f"no batch, and no word, after {self.sampled} prompts")


def equal(_: int) -> list[float | None]:
    return [0.0, 0.0]


@pytest.mark.parametrize("refill_rounds", [0, 1, 3])
def test_a_batch_is_refilled_by_so_many_rounds_and_then_short(refill_rounds: int) -> None:
    rules = FlowRules(prompts_per_step=4, staleness=1, refill_rounds=refill_rounds)
    run = Run(rules, lambda draw: [0.0, float(draw % 8 == 0)])
    for version in range(4):
        record = run.batch(version, patience=100)
        kept = [item for item in record.groups if not item.drop_reason]
        rounds = 4 * (1 + refill_rounds)
        # Only a batch that would be empty takes more prompts, up to its first group.
        assert len(kept) == 1 if len(record.groups) > rounds else len(record.groups) == rounds


def test_a_batch_is_full_where_few_groups_are_dropped() -> None:
    run = Run(
        FlowRules(prompts_per_step=4, staleness=1, refill_rounds=1), lambda draw: [0.0, float(draw % 3 > 0)]
    )
    for version in range(4):
        record = run.batch(version, patience=20)
        assert sum(not item.drop_reason for item in record.groups) == 4


@pytest.mark.parametrize(("refill_rounds", "most"), [(0, 12), (5, 24)])
@pytest.mark.parametrize("later", [0, 2])
def test_prompts_without_any_group_end_the_run_with_the_cause_and_a_remedy(
    refill_rounds: int, most: int, later: int
) -> None:
    rules = FlowRules(prompts_per_step=4, staleness=1, refill_rounds=refill_rounds, dry_prompts=12)
    run = Run(rules, lambda _: [0.0, 1.0])
    for version in range(later):
        run.batch(version, patience=20)
    run.rewards, run.sampled = equal, 0
    run.scheduler.state.models["policy"].buffer.clear()
    with pytest.raises(FlowRefusal) as refused:
        run.batch(later, patience=1000)
    assert run.sampled == most
    said = str(refused.value)
    assert f"{most} consecutive prompts gave no group to train policy on: {most} zero_variance" in said
    assert "The reward of every reply is 0." in said
    for remedy in ("whetstone data difficulty", "samples_per_prompt", "drop_zero_variance: false"):
        assert remedy in said


def test_rewards_without_a_verdict_are_another_cause() -> None:
    run = Run(FlowRules(prompts_per_step=2, staleness=1, dry_prompts=6), lambda _: [None, None])
    with pytest.raises(FlowRefusal, match=r"6 unscored\. No reply has a reward"):
        run.batch(0, patience=100)


def test_a_model_that_keeps_groups_of_equal_rewards_is_not_filtered() -> None:
    models = ("coder", "verifier")
    rules = FlowRules(models=models, prompts_per_step=2, staleness=1, unfiltered=("coder",))
    scheduler = started(rules)
    for grant in take(scheduler, "one", 3):
        finish(scheduler, "one", grant, [1.0, 1.0])
    assert [len(scheduler.state.models[name].buffer) for name in models] == [3, 0]


class Silent:
    """A flow whose batch does not come, and whose words do not change."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    async def resume(self, model: str, version: int, drawn: int, unused: Sequence[int]) -> None: ...

    async def publish(self, model: str, offer: Offer) -> None: ...

    async def batch(self, request: TrainerRequest) -> BatchResponse | BatchPending:
        self.clock[0] += request.wait_s
        return BatchPending("nothing has come")


async def minutes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    clock, said = [0.0], list[str]()
    monkeypatch.setattr("whetstone.rollout.remote_flow.time.monotonic", lambda: clock[0])
    flow = RemoteFlow(Silent(clock), wait_s=600.0, log=said.append)
    with pytest.raises(Exception, match=r"no batch for version 0 in 600 s"):
        await flow.next_batch(0)
    return said


def test_the_reason_for_a_wait_is_logged_every_minute_while_it_does_not_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = asyncio.run(minutes(monkeypatch))
    assert len(said) == 10
    assert set(said) == {"waiting for the batch of version 0: nothing has come"}

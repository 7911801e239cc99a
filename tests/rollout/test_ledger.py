"""Every generated token is in one account, whatever happens to its replica, its prompt or its trainer."""

from __future__ import annotations

import pytest

from tests.rollout.doubles import started
from whetstone.algorithm.named import algorithm_named
from whetstone.core.sample import Group, Sample
from whetstone.report.ledger import latest_tokens, ledger_line, ledger_rows
from whetstone.rollout.flow_rules import FlowRefusal, FlowRules
from whetstone.rollout.group_facts import GroupFacts, facts_of
from whetstone.rollout.ledger import TokenLedger, unaccounted, wasted_share
from whetstone.rollout.scheduler import Delivery, LeaseGrant
from whetstone.rollout.state import Offer
from whetstone.rollout.status import composition_costs, token_totals


class Story:
    """A flow with one prompt for each of the replicas ``one`` and ``two``."""

    def __init__(self, **rules: object) -> None:
        given = FlowRules(prompts_per_step=1, staleness=1, silence_s=20.0, lease_s=50.0, **rules)  # pyright: ignore
        self.scheduler = started(given)
        self.held: dict[str, list[LeaseGrant]] = {}
        for name in ("one", "two"):
            self.take(name, 1)

    def take(
        self, name: str, room: int, generated: int = 0, process: str = "first", now: float = 0.0
    ) -> None:
        mine = self.held.setdefault(name, [])
        found = self.scheduler.take(
            name,
            holding=[grant.serial for grant in mine],
            room=room,
            versions={"policy": 0},
            now=now,
            progress={grant.serial: {"policy": (generated, 0)} for grant in mine},
            reporter=process,
        )
        mine += found.leases
        self.held[name] = [grant for grant in mine if grant.serial not in found.revoked]

    def deliver(
        self,
        name: str,
        tokens: list[int],
        rewards: list[float | None],
        *,
        version: int = 0,
        process: str = "first",
    ) -> str:
        grant = self.held[name][0]
        counts = [{version: count} if count else {} for count in tokens]
        facts = GroupFacts(grant.problem, "", "", rewards, counts, [""] * len(tokens))
        delivery = Delivery(grant.serial, grant.draw, {"policy": (facts, b"x")})
        return self.scheduler.deliver(name, delivery, 0.0, process)

    def account(self) -> dict[str, int]:
        """The accounts that are not 0."""
        totals = token_totals(self.scheduler.state, "policy")
        assert unaccounted(totals) == 0
        return {name: count for name, count in totals.items() if count}


def test_tokens_count_when_they_are_reported_and_once() -> None:
    story = Story()
    story.take("one", 1, generated=5)
    story.take("one", 1, generated=5)  # sent again
    story.take("one", 1, generated=3)  # an old message
    assert story.account() == {"generated": 5, "in_flight/sampling": 5}
    assert story.deliver("one", [4, 6], [0.0, 1.0]) == "taken"
    assert story.deliver("one", [4, 6], [0.0, 1.0]) == "duplicate"  # sent again
    assert story.account() == {"generated": 10, "in_flight/buffered": 10}


def test_unused_tokens_of_an_environment_count_as_dropped() -> None:
    story = Story()
    story.take("one", 1, generated=12)
    story.deliver("one", [4, 6], [0.0, 1.0])
    assert story.account() == {"generated": 12, "dropped/unused": 2, "in_flight/buffered": 10}


def test_tokens_of_a_dead_replica_count_as_lost() -> None:
    story = Story()
    story.take("one", 1, generated=5)
    story.scheduler.replicas["two"].last_heard = 30.0
    story.scheduler.expire(30.0)
    assert story.account() == {"generated": 5, "dropped/dead": 5}


def test_a_process_that_starts_again_under_its_name_samples_from_the_beginning() -> None:
    story = Story()
    story.take("one", 1, generated=5)
    story.take("one", 1, generated=2, process="second")
    assert story.account() == {"generated": 7, "dropped/dead": 5, "in_flight/sampling": 2}
    story.deliver("one", [1, 2], [0.0, 1.0], process="second")
    assert story.account() == {"generated": 8, "dropped/dead": 5, "in_flight/buffered": 3}


def test_tokens_of_the_slower_of_two_replicas_are_dropped() -> None:
    story = Story()
    story.take("one", 1, generated=5)
    story.scheduler.replicas["one"].last_heard = story.scheduler.replicas["two"].last_heard = 60.0
    story.scheduler.expire(60.0)  # its lease is late
    story.held["two"] = []
    story.take("two", 2, now=60.0)
    story.held["two"] = [grant for grant in story.held["two"] if grant.draw == story.held["one"][0].draw]
    story.deliver("two", [3, 3], [0.0, 1.0])
    assert story.account() == {"generated": 11, "dropped/duplicate": 5, "in_flight/buffered": 6}


def test_refused_and_returned_prompts_have_accounts_of_their_own() -> None:
    story = Story()
    with pytest.raises(FlowRefusal, match="the newest weights"):
        story.deliver("one", [4, 6], [0.0, 1.0], version=9)
    story.take("two", 1, generated=3)
    story.scheduler.leave("two")
    assert story.account() == {"generated": 13, "dropped/refused": 10, "dropped/returned": 3}
    assert composition_costs(story.scheduler.state, "policy")["wasted"] == 1.0


def test_a_batch_that_is_trained_again_is_replayed_and_in_flight_until_then() -> None:
    story = Story()
    story.deliver("one", [4, 6], [0.0, 1.0])
    story.deliver("two", [1, 1], [1.0, 1.0])
    flat = {"dropped/zero_variance": 2}
    assert story.scheduler.next_batch("policy", 0) is not None
    assert story.account() == {"generated": 12, **flat, "in_flight/training": 10}
    for _ in range(3):  # the offer is repeated with every request
        story.scheduler.publish("policy", Offer(1))
    assert story.account() == {"generated": 12, **flat, "trained": 10}
    story.scheduler.resume("policy", 0, 2, [])
    assert story.account() == {"generated": 12, **flat, "in_flight/training": 10}
    for start in ("second", "third"):
        story.scheduler.publish("policy", Offer(1, run_id=start))
        assert story.account() == {"generated": 12, **flat, "replayed": 10}
        story.scheduler.resume("policy", 0, 2, [])


def test_tokens_without_loss_in_a_trained_group_are_dropped_with_their_reason() -> None:
    def sample(reward: float | None, versions: list[int], end: str = "stop", given: int = 0) -> Sample:
        count = len(versions)
        spans = [(0, given)] if given else []
        return Sample([1] * count, [0.0] * count, versions, end, "", reward=reward, given=spans)  # pyright: ignore

    group = Group(
        "p",
        [1],
        [
            sample(1.0, [3, 3, 4]),
            sample(0.0, [3, 4, 4, 4, 5], given=1),  # of which the model wrote four
            sample(None, [4, 4]),
            sample(1.0, [5] * 6, "length"),
        ],
    )
    facts = facts_of(group, algorithm_named("dapo", {"mask_truncated": True, "overlong_buffer": 0}))
    assert facts.tokens == [{3: 2, 4: 1}, {4: 3, 5: 1}, {4: 2}, {5: 6}]
    assert facts.without_loss == ["", "", "unscored", "truncated"]
    assert (facts.oldest, facts.newest, facts.generated) == (3, 5, 15)
    ledger = TokenLedger()
    assert ledger.compose(facts) == 7
    assert ledger.compose(facts, oldest=4) == 5
    assert ledger.dropped == {"unscored": 4, "truncated": 12, "too_old": 2}


def test_the_account_is_shown_as_an_equation_and_says_where_it_does_not_close() -> None:
    tokens = {"generated": 100, "trained": 60, "replayed": 10, "dropped/stale": 8, "dropped/zero_variance": 2}
    tokens |= {"in_flight/sampling": 20, "in_flight/buffered": 0}
    assert ledger_line(tokens) == (
        "100 generated = 60 trained + 10 replayed + 10 dropped (8 stale, 2 zero_variance)"
        " + 20 in flight (20 sampling)"
    )
    assert dict(ledger_rows(tokens))["dropped: zero variance"] == "2 (2.00%)"
    assert wasted_share(tokens) == 0.1
    assert "; 3 are not accounted for" in ledger_line(tokens | {"trained": 57})
    assert dict(ledger_rows(tokens | {"trained": 57}))["not accounted for"] == "3"
    assert latest_tokens([{"time": {"step": 1.0, "ledger/generated": 5}}]) == {"generated": 5}
    assert latest_tokens([{"time": {"step": 1.0}}]) == {}

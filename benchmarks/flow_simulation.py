"""A run whose engines, judges and trainer are durations on a clock that is computed, around the flow's own
state machine.

An engine generates ``TOKENS_PER_S`` tokens of a reply in a second, for as many replies at once as it has
slots. Replies have lognormal lengths. New weights arrive at all replicas a while after a step, and replies in
progress continue with them, so the weight version of every token is known.
"""

from __future__ import annotations

import bisect
import heapq
import math
import random
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from whetstone.rollout.async_flow import WaitingReplicas
from whetstone.rollout.flow_rules import BatchComposition, FlowRules
from whetstone.rollout.group_facts import GroupFacts
from whetstone.rollout.ledger import unaccounted, wasted_share
from whetstone.rollout.scheduler import Delivery, FlowScheduler, LeaseGrant
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import BatchRecord, Offer
from whetstone.rollout.status import token_totals

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.rollout.doubles import MemoryLog

Bound = Literal["generation", "judging", "training"]
SIGMA = 1.0
"""Of the logarithm of a reply's length: one in a hundred has ten times the median."""
FLAT = 0.25
"""The share of groups without a learning signal."""
TOKENS_PER_S = 1000
"""The mean length of a reply is one second."""
OTHERS = 0.7
"""The load of what is not the bottleneck."""
WEIGHTS_S = 0.05
"""From a step to its weights at the replicas, as a part of the step."""
AHEAD = 2
"""Prompts that a replica holds beside those that it generates or judges, so that its engine never waits."""


@dataclass(frozen=True)
class Setting:
    """``slots`` replies at once on up to 64 replicas, ``replies`` of each prompt, and batches of ``prompts``.

    limit: the most tokens of a reply, in mean lengths; 0 is none. What ``bound`` names is the bottleneck.
    """

    slots: int
    prompts: int
    staleness: int
    bound: Bound
    rule: BatchComposition = "wait"
    replies: int = 1
    limit: float = 0.0

    @property
    def rate(self) -> float:
        """Prompts that the bottleneck handles in a second."""
        most = self.slots / self.replies
        return most if self.bound == "generation" else OTHERS * most

    @property
    def judges(self) -> int:
        """Groups that are judged at once."""
        return max(1, self.slots // self.replies // 8)

    @property
    def judge_s(self) -> float:
        """Mean seconds to judge a group."""
        return (1 if self.bound == "judging" else OTHERS) * self.judges / self.rate

    @property
    def step_s(self) -> float:
        """Seconds of a training step."""
        kept = self.prompts / (1 - FLAT)
        return (1 if self.bound == "training" else OTHERS) * kept / self.rate


@dataclass(frozen=True)
class Figures:
    """What a rule achieves. Throughputs are relative to the bottleneck alone: of trained groups, and of
    trained tokens. wasted: share of tokens. ks: between the lengths of trained replies and of all replies
    whose groups have a signal. age: mean over trained tokens, in versions."""

    groups: float
    tokens: float
    wasted: float
    stale_groups: float
    ks: float
    age: float


@dataclass
class _Prompt:
    """A prompt at a replica. ``left``: replies that have not ended. ``begun``: the first weights, or -1."""

    grant: LeaseGrant
    left: int
    begun: int = -1
    tokens: list[dict[int, int]] = field(default_factory=list[dict[int, int]])


class Simulation:
    """One run of a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.rng = setting, random.Random(7)
        rules = FlowRules(
            prompts_per_step=setting.prompts,
            staleness=setting.staleness,
            batch_composition=setting.rule,
            refill_rounds=20,
            lease_s=1e9,
            silence_s=1e9,
        )
        source = PromptSource([f"p{n}" for n in range(1000)], 0)
        self.scheduler = FlowScheduler(rules, source, MemoryLog(), 0.0)
        count = min(64, setting.slots // setting.replies)
        self.free = {f"r{n}": setting.slots // count + (n < setting.slots % count) for n in range(count)}
        ahead = math.ceil(setting.judges / count) + AHEAD
        self.room = {name: math.ceil(free / setting.replies) + ahead for name, free in self.free.items()}
        self.queue: dict[str, deque[_Prompt]] = {name: deque() for name in self.free}
        self.held: dict[str, dict[int, _Prompt]] = {name: {} for name in self.free}
        self.judges = setting.judges
        self.judging: deque[tuple[str, _Prompt]] = deque()
        self.turns = WaitingReplicas()
        self.events: list[tuple[float, int, Callable[[], object]]] = []
        self.now, self.step, self.trains, self.number = 0.0, 0, False, 0
        self.arrivals = [0.0]
        """When each version of the weights came to the replicas."""
        self.batches: list[BatchRecord] = []
        self.factor = self._length_factor()

    def _length_factor(self) -> float:
        """What lengths are multiplied by, so that their mean is one second in spite of the limit."""
        if not self.setting.limit:
            return 1.0
        rng, low, high = random.Random(1), 1.0, 16.0
        drawn = [rng.lognormvariate(-SIGMA * SIGMA / 2, SIGMA) for _ in range(20_000)]
        for _ in range(30):
            middle = (low + high) / 2
            mean = sum(min(self.setting.limit, middle * each) for each in drawn) / len(drawn)
            low, high = (middle, high) if mean < 1 else (low, middle)
        return low

    def run(self, steps: int) -> Figures:
        """Make so many steps; the figures are of the later two thirds."""
        began, first = 0.0, steps // 3
        self.scheduler.resume("policy", 0, 0, [])
        for name in self.free:
            self._take(name)
        while self.step < steps:
            self._train()
            if not self.events:
                raise SystemExit("the simulation stands still")
            self.now, _, event = heapq.heappop(self.events)
            event()
            if self.step == first and not began:
                began = self.now
        return self._figures(first, self.now - began)

    def _figures(self, first: int, seconds: float) -> Figures:
        totals = token_totals(self.scheduler.state, "policy")
        assert unaccounted(totals) == 0, totals
        ages: Counter[int] = Counter()
        trained: list[int] = []
        usable: list[int] = []
        for version, record in enumerate(self.batches[first:], first):
            for item in record.groups:
                lengths = [length for length in item.facts.lengths if length]
                usable += lengths if item.drop_reason in ("", "stale") else []
                trained += lengths if not item.drop_reason else []
                for reply in item.facts.tokens if not item.drop_reason else []:
                    for drawn_with, tokens in reply.items():
                        if record.oldest is None or drawn_with >= record.oldest:
                            ages[version - drawn_with] += tokens
        most = self.setting.rate * (1 - FLAT) * seconds
        groups = sum(not item.drop_reason for record in self.batches[first:] for item in record.groups)
        all_ = sum(len(record.groups) for record in self.batches)
        stale = sum(item.drop_reason == "stale" for record in self.batches for item in record.groups)
        return Figures(
            groups / most,
            ages.total() / (most * TOKENS_PER_S * self.setting.replies),
            wasted_share(totals) or 0.0,
            stale / all_,
            distance(trained, usable),
            sum(age * tokens for age, tokens in ages.items()) / ages.total(),
        )

    def _at(self, seconds: float, what: Callable[..., object], *given: object) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + seconds, self.number, partial(what, *given)))

    @property
    def _served(self) -> int:
        return len(self.arrivals) - 1

    def _take(self, name: str) -> bool:
        held = self.held[name]
        found = self.scheduler.take(
            name,
            holding=[*held],
            room=self.room[name],
            versions={"policy": self._served},
            now=self.now,
            progress={
                serial: {"policy": (0, self._served if prompt.begun < 0 else prompt.begun)}
                for serial, prompt in held.items()
            },
        )
        for grant in found.leases:
            held[grant.serial] = prompt = _Prompt(grant, self.setting.replies)
            self.queue[name].extend([prompt] * self.setting.replies)
        self._generate(name)
        # It asks on at once, for as long as it may hold more.
        if self.scheduler.may_take(name):
            self.turns.add(name)
        return not self.scheduler.may_take(name)

    def _generate(self, name: str) -> None:
        while self.free[name] and self.queue[name]:
            self.free[name] -= 1
            prompt = self.queue[name].popleft()
            if prompt.begun < 0:
                prompt.begun = self._served
            seconds = self.factor * self.rng.lognormvariate(-SIGMA * SIGMA / 2, SIGMA)
            seconds = min(seconds, self.setting.limit or seconds)
            tokens = max(1, round(seconds * TOKENS_PER_S))
            self._at(tokens / TOKENS_PER_S, self._generated, name, prompt, self.now, tokens)

    def _generated(self, name: str, prompt: _Prompt, start: float, tokens: int) -> None:
        self.free[name] += 1
        version, written, counts = bisect.bisect_right(self.arrivals, start) - 1, 0, dict[int, int]()
        while written < tokens:
            later = self.arrivals[version + 1] if version < self._served else math.inf
            until = min(tokens, round((min(later, self.now + 1) - start) * TOKENS_PER_S))
            if until > written:
                counts[version], written = until - written, until
            version += 1
        prompt.tokens.append(counts)
        prompt.left -= 1
        if not prompt.left:
            self.judging.append((name, prompt))
            self._judge()
        self._generate(name)

    def _judge(self) -> None:
        while self.judges and self.judging:
            self.judges -= 1
            self._at(self.rng.uniform(0.5, 1.5) * self.setting.judge_s, self._judged, *self.judging.popleft())

    def _judged(self, name: str, prompt: _Prompt) -> None:
        self.judges += 1
        self._judge()
        # A group of one reply gets another without tokens, because a group has a spread of rewards.
        tokens = prompt.tokens + [dict[int, int]()] * (self.setting.replies == 1)
        rewards: list[float | None] = [float(self.rng.random() >= FLAT), *[0.0] * (len(tokens) - 1)]
        grant = prompt.grant
        facts = GroupFacts(grant.problem, "", "", rewards, tokens, [""] * len(tokens))
        self.scheduler.deliver(name, Delivery(grant.serial, grant.draw, {"policy": (facts, b"")}), self.now)
        del self.held[name][grant.serial]
        self._take(name)
        self.turns.serve(self.scheduler, self._take)

    def _train(self) -> None:
        if self.trains or (record := self.scheduler.next_batch("policy", self.step)) is None:
            return
        self.trains = True
        self.batches.append(record)
        self.scheduler.checkpoint_saved("policy", self.step)
        self.turns.serve(self.scheduler, self._take)
        self._at(self.setting.step_s, self._trained)

    def _trained(self) -> None:
        self.step, self.trains = self.step + 1, False
        self.scheduler.publish("policy", Offer(self.step))
        self._at(WEIGHTS_S * self.setting.step_s, self._updated)

    def _updated(self) -> None:
        self.arrivals.append(self.now)
        for name in self.free:
            self._take(name)


def distance(some: list[int], all_: list[int]) -> float:
    """The Kolmogorov-Smirnov distance of two samples."""
    a, b = sorted(some), sorted(all_)
    return max(
        abs(bisect.bisect_right(a, length) / len(a) - bisect.bisect_right(b, length) / len(b))
        for length in set(b)
    )

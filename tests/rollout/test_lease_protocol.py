"""A model checker of the lease protocol: replicas die, are late, say things twice or too late, trainers go
back to checkpoints, the flow is killed with the end of its log torn, its disk is full; and still each draw is
trained at most once, and each draw and each token is accounted for exactly once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from whetstone.core.errors import UserError
from whetstone.rollout.events import Event
from whetstone.rollout.file_log import FileLog
from whetstone.rollout.flow_rules import BatchComposition, FlowRefusal, FlowRules
from whetstone.rollout.group_facts import GroupFacts, LogLocation, drop_reason_of_rewards
from whetstone.rollout.ledger import unaccounted
from whetstone.rollout.scheduler import Delivery, FlowScheduler
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import BatchRecord, Offer, new_state
from whetstone.rollout.status import token_totals

NAMES = ("a", "b", "c")
REPLICAS = st.sampled_from(NAMES)
PROBLEMS = [f"p{n}" for n in range(5)]


class SometimesFull(FileLog):
    """A log whose disk a test can fill, and whose unsynced end it can lose."""

    full = False
    synced_up_to = (0, 0)

    def append(
        self, event: Event, payloads: Sequence[bytes] = (), *, synced: bool = False
    ) -> list[LogLocation]:
        if self.full:
            raise UserError("no space left on device")
        places = super().append(event, payloads, synced=synced)
        if synced:
            self.synced_up_to = (self._number, self._end)
        return places

    def tear(self, share: float) -> None:
        """End as if the power had failed: of what is not on the disk, a part is gone."""
        number, end = self.synced_up_to
        least = end if number == self._number else 0
        path, size = self._path(self._number), self._end
        self.close()
        first = path.read_bytes()[:4096]
        least = max(least, 8 + 16 + int.from_bytes(first[8:12], "little"))  # files begin whole
        os.truncate(path, size - int(share * max(0, size - least)))


@dataclass
class Replica:
    versions: dict[str, int]
    process: str
    holding: dict[int, int] = field(default_factory=dict[int, int])
    begun: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])
    """The weights of the first token of each lease."""
    said: dict[int, int] = field(default_factory=dict[int, int])
    """The tokens of each lease so far, of 7 at most."""
    waiting: list[Delivery] = field(default_factory=list[Delivery])


def rewards(draw: int, model: str) -> list[float | None]:
    """What a prompt is worth, whoever samples it."""
    kind = (draw * 7 + len(model)) % 5
    return [None, 1.0] if kind == 0 else [1.0, 1.0] if kind == 1 else [0.0, 1.0]


def contents(record: BatchRecord) -> tuple[list[tuple[int, str]], dict[str, int]]:
    return [(item.draw, item.drop_reason) for item in record.groups], record.lost


class Protocol(RuleBasedStateMachine):
    staleness = 0

    @initialize(
        prompts=st.integers(2, 4),
        shares=st.integers(1, 2),
        refill=st.integers(0, 2),
        models=st.sampled_from([("m",), ("m", "mm")]),
        failures=st.sampled_from([2, 1000]),
        composition=st.sampled_from(get_args(BatchComposition)),
    )
    def begin(
        self,
        prompts: int,
        shares: int,
        refill: int,
        models: tuple[str, ...],
        failures: int,
        composition: BatchComposition,
    ) -> None:
        self.rules_of_run = FlowRules(
            models=models,
            prompts_per_step=prompts,
            staleness=self.staleness,
            batch_composition=composition,
            shares=1 if self.staleness else shares,
            refill_rounds=refill,
            lease_s=50.0,
            silence_s=20.0,
            most_failures=failures,
        )
        self.folder = Path(tempfile.mkdtemp())
        self.now = 0.0
        self.replicas: dict[str, Replica] = {}
        self.network: list[tuple[str, Delivery]] = []
        """Deliveries that are on their way, some of them a second time."""
        self.version = dict.fromkeys(models, 0)
        self.asked = dict.fromkeys(models, False)
        self.checkpoint = dict.fromkeys(models, 0)
        self.given: dict[tuple[str, int], tuple[list[tuple[int, str]], dict[str, int]]] = {}
        self.processes = 0
        self.with_loss = Counter[str]()
        """By model, the tokens that the batches train."""
        self.restart_flow()
        for model in models:
            self.scheduler.resume(model, 0, 0, [])

    def restart_flow(self) -> None:
        on_disk = self.log.synced_up_to if hasattr(self, "log") else (0, 0)
        self.log = SometimesFull(self.folder, "run", file_bytes=3000)
        self.log.synced_up_to = on_disk
        if self.log.state is None:
            self.log.begin(new_state(self.rules_of_run.models))
        self.scheduler = FlowScheduler(
            self.rules_of_run, PromptSource(PROBLEMS, 3), self.log, self.now, self.log.state
        )

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.heal()
            self.log.close()
            shutil.rmtree(self.folder)

    # -- replicas

    def take(self, name: str, *, room: int, heard: bool = True) -> None:
        if name not in self.replicas:
            self.processes += 1
            self.replicas[name] = Replica(dict.fromkeys(self.version, 0), str(self.processes))
        replica = self.replicas[name]
        try:
            taken = self.scheduler.take(
                name,
                holding=list(replica.holding),
                room=room,
                versions=replica.versions,
                now=self.now,
                progress=self.progress(replica),
                reporter=replica.process,
            )
        except UserError:
            return  # too little room for a share, or a full disk
        if heard:
            for serial in taken.revoked:
                del replica.holding[serial]
            for grant in taken.leases:
                assert grant.problem == PromptSource(PROBLEMS, 3).at(grant.draw)
                replica.holding[grant.serial] = grant.draw
                replica.said[grant.serial] = 0
            replica.versions |= {model: offer.version for model, offer in taken.weight_updates.items()}

    def progress(self, replica: Replica) -> dict[int, dict[str, tuple[int, int]]]:
        return {
            serial: {
                model: (replica.said[serial], replica.begun.get(serial, replica.versions)[model])
                for model in self.version
            }
            for serial in replica.holding
        }

    @rule(name=REPLICAS, tokens=st.integers(1, 7))
    def generates(self, name: str, tokens: int) -> None:
        """Of each of its prompts a few tokens, with the weights that it has now."""
        if replica := self.replicas.get(name):
            for serial in replica.holding:
                replica.begun.setdefault(serial, dict(replica.versions))
                replica.said[serial] = min(7, replica.said[serial] + tokens)

    @rule(name=REPLICAS, room=st.integers(0, 8), heard=st.booleans())
    def takes(self, name: str, room: int, heard: bool) -> None:
        self.take(name, room=room, heard=heard)

    @rule(name=REPLICAS)
    def works(self, name: str) -> None:
        """All goes well for a while."""
        self.take(name, room=8)
        for serial in list(self.replicas[name].holding):
            self.finish(name, serial, False)
            self.arrive(len(self.network) - 1, True)

    @precondition(lambda self: any(replica.holding for replica in self.replicas.values()))
    @rule(data=st.data(), twice=st.booleans(), count=st.integers(1, 4))
    def finishes(self, data: st.DataObject, twice: bool, count: int) -> None:
        names = [name for name, replica in self.replicas.items() if replica.holding]
        name = data.draw(st.sampled_from(names))
        for _ in range(min(count, len(self.replicas[name].holding))):
            serial = data.draw(st.sampled_from(sorted(self.replicas[name].holding)))
            self.finish(name, serial, twice)

    def finish(self, name: str, serial: int, twice: bool) -> None:
        replica = self.replicas[name]
        draw = replica.holding.pop(serial)
        problem = PromptSource(PROBLEMS, 3).at(draw)
        groups: dict[str, tuple[GroupFacts, bytes]] = {}
        begun = replica.begun.get(serial, replica.versions)
        for model, version in replica.versions.items():
            # One token is generated with the first weights, the others with the last ones.
            first: dict[int, int] = Counter([begun[model], version, version])
            worth = rewards(draw, model)
            without_loss = ["" if reward is not None or 1.0 not in worth else "unscored" for reward in worth]
            facts = GroupFacts(problem, "", "", worth, [dict(first), {version: 4}], without_loss)
            groups[model] = (facts, f"{draw} {model}".encode() * 20)
        self.network += [(name, Delivery(serial, draw, groups))] * (1 + twice)

    @precondition(lambda self: self.network)
    @rule(data=st.data(), answered=st.booleans())
    def arrives(self, data: st.DataObject, answered: bool) -> None:
        place = data.draw(st.integers(0, len(self.network) - 1))
        self.arrive(place, answered)

    def arrive(self, place: int, answered: bool) -> None:
        name, delivery = self.network[place]
        try:
            replica = self.replicas.get(name)
            self.scheduler.deliver(name, delivery, self.now, replica.process if replica else "")
        except FlowRefusal:
            pass  # sampled by weights that are none any more
        except UserError:
            return  # the disk is full: it stays on its way
        if answered:
            del self.network[place]

    @rule(name=REPLICAS, says_so=st.booleans())
    def dies(self, name: str, says_so: bool) -> None:
        if self.replicas.pop(name, None) is not None and says_so and not self.log.full:
            self.scheduler.leave(name)

    @rule(seconds=st.sampled_from([5.0, 15.0, 30.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        if not self.log.full:
            self.scheduler.expire(self.now)

    # -- trainers

    @rule(data=st.data(), heard=st.booleans(), steps=st.booleans(), saves=st.booleans())
    def trains(self, data: st.DataObject, heard: bool, steps: bool, saves: bool) -> None:
        model = data.draw(st.sampled_from(sorted(self.version)))
        try:
            self.train(model, heard=heard, steps=steps, saves=saves)
        except UserError:
            assert self.log.full

    def train(self, model: str, *, heard: bool = True, steps: bool = True, saves: bool = False) -> bool:
        version = self.version[model]
        self.offer(model)  # every time, for a flow that may have lost it
        record = self.scheduler.next_batch(model, version)
        if record is None or not heard:
            return False
        self.check(model, version, record)
        if steps:
            self.version[model] += 1
            self.offer(model)
            if saves:
                self.checkpoint[model] = version + 1
                self.scheduler.checkpoint_saved(model, version + 1)
        return True

    def offer(self, model: str) -> None:
        self.scheduler.publish(model, Offer(self.version[model], run_id="a start of a trainer"))

    def check(self, model: str, version: int, record: BatchRecord) -> None:
        """A batch is what it was before, and no group in it is older than allowed."""
        if (model, version) not in self.given:
            self.with_loss[model] += sum(
                count
                for item in record.groups
                if not item.drop_reason
                for reply, reason in zip(item.facts.tokens, item.facts.without_loss, strict=True)
                if not reason
                for drawn_with, count in reply.items()
                if record.oldest is None or drawn_with >= record.oldest
            )
        assert self.given.setdefault((model, version), contents(record)) == contents(record)
        for item in record.groups:
            assert self.scheduler.log.read(item.location) == f"{item.draw} {model}".encode() * 20
            reason = drop_reason_of_rewards(rewards(item.draw, model), drop_zero_variance=True)
            assert item.drop_reason in ({reason} if reason else {"", "stale", "surplus"})
            if not item.drop_reason:
                assert item.oldest is not None
                assert item.newest is not None
                trained = item.oldest if record.oldest is None else max(item.newest, record.oldest)
                assert 0 <= version - trained <= self.staleness
                assert self.rules_of_run.batch_composition == "mask" or record.oldest is None

    @rule()
    def trainers_die(self) -> None:
        self.version = dict(self.checkpoint)
        if not self.log.full:
            for model, version in self.version.items():
                self.scheduler.resume(model, version, 0, [])

    # -- the flow

    @rule(share=st.floats(0, 1), torn=st.booleans())
    def flow_dies(self, share: float, torn: bool) -> None:
        if torn:
            self.log.tear(share)
        else:
            self.log.close()
        self.restart_flow()

    @rule(full=st.sampled_from([True, False, False]))
    def disk_fills_or_empties(self, full: bool) -> None:
        self.log.full = full

    # -- what must hold

    @invariant()
    def every_draw_is_in_one_place(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        state = self.scheduler.state
        for name, model in state.models.items():
            told = [draw for (m, _), (items, _) in self.given.items() if m == name for draw, _ in items]
            assert len(told) == len(set(told))
            lost = sum(sum(losses.values()) for (m, _), (_, losses) in self.given.items() if m == name)
            pending = [version for version in model.batches if (name, version) not in self.given]
            for version in pending:  # made, and the answer got lost
                told += [item.draw for item in model.batches[version].groups]
                lost += sum(model.batches[version].lost.values())
            told += [*state.pending, *model.buffer, *(item.draw for item in model.dropped_groups)]
            assert len(told) == len(set(told))
            assert len(told) + lost + sum(model.lost_prompts.values()) == state.drawn
            assert set(told) <= set(range(state.drawn))

    @invariant()
    def every_token_is_in_one_account(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for name, model in self.scheduler.state.models.items():
            totals = token_totals(self.scheduler.state, name)
            assert unaccounted(totals) == 0, totals
            assert min(totals.values()) >= 0, totals
            not_given = [
                record.tokens
                for version, record in model.batches.items()
                if (name, version) not in self.given
            ]
            used = totals["trained"] + totals["replayed"] + totals["in_flight/training"]
            assert used == self.with_loss[name] + sum(not_given), totals

    @invariant()
    def no_more_is_under_way_than_can_be_used(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        state, rules = self.scheduler.state, self.scheduler.rules
        assert state.unassigned <= state.pending.keys()
        for lease in state.leases.values():
            assert lease.draw < state.drawn
        fewest = min(len(model.buffer) for model in state.models.values())
        most = (rules.staleness + 1) * rules.prompts_per_step * (1 + (rules.staleness == 0))
        assert len(state.pending) + fewest <= most

    def heal(self) -> None:
        """Whatever has happened, with one replica that works the next batches come."""
        self.log.full = False
        self.network.clear()
        self.replicas.clear()
        for model, version in self.version.items():
            self.scheduler.resume(model, version, 0, [])
        goal = min(self.version.values()) + 2
        for _ in range(200):
            if min(self.version.values()) >= goal:
                return
            self.now += 10.0
            self.scheduler.expire(self.now)
            self.take("new", room=8)
            for serial in list(self.replicas["new"].holding):
                self.finish("new", serial, False)
            while self.network:
                self.arrive(0, True)
            for model in self.version:
                if self.version[model] <= min(self.version.values()):
                    self.train(model)
        raise AssertionError("no batch came")


class RoundsProtocol(Protocol):
    """Staleness 0."""

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "scheduler") and self.rules_of_run.most_failures > 100:
            self.compare_with_rounds()

    def compare_with_rounds(self) -> None:
        """Batches are those that the synchronous loop would have made, whatever has happened."""
        rules, draw = self.rules_of_run, 0
        for version in range(max(v for _, v in self.given) + 1):
            sampled: list[int] = []
            kept: dict[str, list[int]] = {model: [] for model in rules.models}
            for _ in range(1 + rules.refill_rounds):
                missing = rules.prompts_per_step - min(map(len, kept.values()))
                if missing <= 0:
                    break
                for one in range(draw, draw + missing):
                    sampled.append(one)
                    for model in rules.models:
                        if drop_reason_of_rewards(rewards(one, model), drop_zero_variance=True) is None:
                            kept[model].append(one)
                draw += missing
            for model in rules.models:
                if (model, version) in self.given:
                    items, _ = self.given[model, version]
                    assert [one for one, _ in items] == sampled
                    trained = [one for one, reason in items if not reason]
                    assert trained == kept[model][: rules.prompts_per_step]


class StaleProtocol(Protocol):
    """Staleness 2."""

    staleness = 2


LENGTHS = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    report_multiple_bugs=False,
    phases=(Phase.generate,),
)
TestRounds = RoundsProtocol.TestCase
TestRounds.settings = LENGTHS
TestStale = StaleProtocol.TestCase
TestStale.settings = LENGTHS

"""Programs over nodes that come and go, in any order of events: each answered once, and none for ever."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from whetstone.judge_service.cluster.routing import MOST_LOSSES, PER_WORKER, SUSPECT_AFTER, Routing


class Nodes(RuleBasedStateMachine):
    """What is to hold, written down as plainly as it can be."""

    @initialize()
    def begin(self) -> None:
        self.routing = Routing()
        self.workers: dict[str, int] = {}
        self.at: dict[int, str] = {}
        """Of every program that has a node."""
        self.waiting: set[int] = set()
        self.losses = Counter[int]()
        self.ends = Counter[int]()
        self.priority: dict[int, int] = {}
        self.stale: list[tuple[int, str]] = []
        """Where programs once were: nodes may still answer for them."""
        self.names = self.numbers = 0

    def of(self, node: str) -> list[int]:
        return [number for number, name in self.at.items() if name == node]

    def has_room(self, node: str) -> bool:
        return len(self.of(node)) < PER_WORKER * self.workers[node]

    def load(self, node: str) -> float:
        return len(self.of(node)) / self.workers[node]

    def suspect(self, number: int) -> bool:
        return self.losses[number] >= SUSPECT_AFTER

    @rule(workers=st.integers(1, 3))
    def join(self, workers: int) -> None:
        self.names += 1
        name = f"node {self.names}"
        self.workers[name] = workers
        self.routing.joined(name, workers)
        self.place()

    @rule(count=st.integers(1, 12), priority=st.integers(0, 2))
    def arrive(self, count: int, priority: int) -> None:
        for _ in range(count):
            self.numbers += 1
            self.routing.add(self.numbers, priority, float("inf"))
            self.priority[self.numbers] = priority
            self.waiting.add(self.numbers)
        self.place()

    def place(self) -> None:
        for number, name in self.routing.place():
            assert number in self.waiting
            free = [node for node in self.workers if self.has_room(node)]
            assert name in free
            if self.suspect(number):
                assert not any(self.suspect(other) for other in self.of(name))
            else:
                assert self.load(name) == min(map(self.load, free))
                others = [each for each in self.waiting if not self.suspect(each)]
                assert self.priority[number] == max(self.priority[each] for each in others)
            self.waiting.remove(number)
            self.at[number] = name

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.workers)))
        had = self.of(name)
        again, given_up = self.routing.left(name)
        del self.workers[name]
        assert again + len(given_up) == len(had)
        for number in had:
            del self.at[number]
            self.stale.append((number, name))
            self.losses[number] += 1
            assert (number in given_up) == (self.losses[number] >= MOST_LOSSES)
            if number in given_up:
                self.ends[number] += 1
            else:
                self.waiting.add(number)
        self.place()

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.at)))
        name = self.at.pop(number)
        assert self.routing.done(number, name)
        self.ends[number] += 1
        self.stale.append((number, name))
        self.place()

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def answer_late(self, data: st.DataObject) -> None:
        number, name = data.draw(st.sampled_from(self.stale))
        if self.at.get(number) != name:
            assert not self.routing.done(number, name)

    @precondition(lambda self: self.at or self.waiting)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted({*self.at, *self.waiting})))
        assert self.routing.drop(number) == self.at.pop(number, None)
        self.waiting.discard(number)
        self.ends[number] += 1
        self.place()

    @invariant()
    def nothing_is_lost_or_answered_twice(self) -> None:
        assert all(count == 1 for count in self.ends.values())
        assert {*self.ends, *self.at, *self.waiting} == set(range(1, self.numbers + 1))
        assert self.routing.waiting == len(self.waiting)
        assert self.routing.workers == sum(self.workers.values())
        for name in self.workers:
            assert self.routing.under_way(name) == len(self.of(name))

    @invariant()
    def nobody_waits_where_there_is_room(self) -> None:
        if any(map(self.has_room, self.workers)):
            assert all(map(self.suspect, self.waiting))


Nodes.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestNodes = Nodes.TestCase


def test_a_program_that_kills_its_node_again_and_again_takes_no_other_one_with_it() -> None:
    """All on one node, which comes back each time: the killer is given up, the others are judged."""
    routing, killer, lives = Routing(), 7, 0
    for number in range(PER_WORKER * 4):
        routing.add(number, 0, float("inf"))
    ends = Counter[str]()
    while ends.total() < PER_WORKER * 4:
        lives += 1
        routing.joined(f"life {lives}", 4)
        under_way = {number for number, _ in routing.place()}
        while killer not in under_way and under_way:
            for number in sorted(under_way):
                ends["judged"] += routing.done(number, f"life {lives}")
            under_way = {number for number, _ in routing.place()}
        _, given_up = routing.left(f"life {lives}")
        ends["given up"] += len(given_up)
        assert lives < 50
    assert ends == {"judged": PER_WORKER * 4 - 1, "given up": 1}
    assert lives == MOST_LOSSES + 1

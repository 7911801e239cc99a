"""Decides which replica samples which prompts: returned prompts first, then new ones as far as batches can
use them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from whetstone.rollout.batch_composition import deal_shares, groups_missing, prompts_admitted, wants_refill
from whetstone.rollout.events import DrawsLeased, Event, PromptsDrawn
from whetstone.rollout.flow_rules import FlowRefusal, FlowRules
from whetstone.rollout.source import PromptSource
from whetstone.rollout.state import FlowState

TAKEOVER_S = 30.0
"""A process loses its name if it is silent for this many seconds while another process sends requests under
the name.

It is longer than any long poll, so a working process always sends a request in time.
"""


class ReplicaState(Struct):
    """The facts about a replica.

    last_heard: time of its last message. room: the most prompts that it can hold. versions: the weight
    version of each model that it serves. load: figures that it reports. incarnation: the process that owns
    the name, None until one has announced itself. disconnected: whether its connection broke. rivals: other
    processes that use this name, and since when.
    """

    last_heard: float
    room: int = 0
    versions: dict[str, int] = field(default_factory=dict[str, int])
    load: dict[str, float] = field(default_factory=dict[str, float])
    incarnation: str | None = None
    disconnected: bool = False
    rivals: dict[str, float] = field(default_factory=dict[str, float])

    def update(self, now: float, room: int, versions: dict[str, int], load: dict[str, float]) -> None:
        """Record a message from the replica."""
        self.last_heard, self.room, self.versions, self.load = now, room, versions, load

    def accepts(self, incarnation: str) -> bool:
        """Return whether a process may act under this name."""
        return self.incarnation in (None, incarnation)

    def claim_name(self, name: str, incarnation: str, now: float) -> bool:
        """Let a process act under this name if no other process does. If False, the process should retry.

        A restarted process gets its name back at once if the old connection broke, and otherwise after
        ``TAKEOVER_S`` of silence. Raises FlowRefusal if the other process sends a message in the meantime.
        """
        if not self.accepts(incarnation):
            since = self.rivals.setdefault(incarnation, now)
            if self.last_heard > since:
                del self.rivals[incarnation]
                raise FlowRefusal(
                    "name",
                    f"another process is the replica `{name}`; give each replica a name of its own "
                    "(`whetstone role rollout --name NAME`), or leave the name out",
                )
            if not self.disconnected and now - since <= TAKEOVER_S:
                return False
            self.rivals.clear()
        self.incarnation, self.disconnected = incarnation, False
        return True


def lease_more(
    state: FlowState,
    rules: FlowRules,
    source: PromptSource[str],
    replica: str,
    state_of_replica: ReplicaState,
    total_room: int,
) -> Iterator[Event]:
    """Yield the events that fill a replica up to its room. Apply each event before asking for the next.

    ``total_room``: of all replicas. Raises FlowRefusal for a room that is smaller than the replica's share of
    a round.
    """
    served = state_of_replica.versions
    if state_of_replica.room <= 0 or any(
        not m.ready or served[name] > m.newest for name, m in state.models.items()
    ):
        return
    lag = {name: model.next_batch - served[name] for name, model in state.models.items()}
    # Groups that are sampled with these weights would be stale when they are trained on.
    if max(lag.values()) > rules.staleness:
        return
    if rules.staleness:
        yield from _lease_prompts(state, rules, source, replica, state_of_replica, total_room)
    # A synchronous round is sampled only with the weights of its batch.
    elif set(lag.values()) == {0}:
        yield from _lease_share(state, rules, source, replica, state_of_replica)


def replica_quota(rules: FlowRules, room: int, total_room: int) -> int:
    """Return the most prompts that a replica with ``room`` out of ``total_room`` may hold.

    If all replicas together have more room than prompts may be in progress, each gets a proportional part.
    Otherwise the first replicas would queue prompts while the engines of the last ones idle.
    """
    most = (rules.staleness + 1) * rules.prompts_per_step
    return min(room, max(1, most * room // max(total_room, 1)))


def _lease_prompts(
    state: FlowState,
    rules: FlowRules,
    source: PromptSource[str],
    replica: str,
    member: ReplicaState,
    total_room: int,
) -> Iterator[Event]:
    held = state.leases_by_replica.get(replica, set())
    room = member.room - len(held)
    # A replica that is late with a prompt does not get the same prompt again.
    reassigned = [draw for draw in sorted(state.unassigned) if held.isdisjoint(state.pending[draw].leases)]
    draws = reassigned[: max(room, 0)]
    quota = replica_quota(rules, member.room, total_room) - len(held)
    fresh = min(room, quota, prompts_admitted(state, rules, member.versions) + len(draws)) - len(draws)
    if fresh > 0:
        drawn = _draw(state, source, fresh)
        yield drawn
        draws += range(drawn.first, state.drawn)
    if draws:
        yield DrawsLeased(replica, draws, dict(member.versions))


def _lease_share(
    state: FlowState, rules: FlowRules, source: PromptSource[str], replica: str, member: ReplicaState
) -> Iterator[Event]:
    """Lease a whole share to a replica that holds nothing else.

    The last bits of a reply's log-probs depend on the other replies in the batch. The prompts of a share are
    therefore sampled together by one replica, so that a restarted run gives the same bits.
    """
    if state.round is None or wants_refill(state, rules):
        count = rules.prompts_per_step if state.round is None else groups_missing(state, rules)
        version = next(iter(state.models.values())).next_batch
        drawn = _draw(state, source, count)
        draws = range(drawn.first, drawn.first + count)
        yield PromptsDrawn(drawn.first, drawn.problems, version, deal_shares(draws, rules.shares))
    # A second share would join the engine's batch of the first, and change its last bits.
    if replica in state.leases_by_replica or state.round is None:
        return
    share = next((share for share in state.round.shares if not state.unassigned.isdisjoint(share)), [])
    if len(share) > member.room:
        raise FlowRefusal(
            "room",
            f"{replica} has room for {member.room} prompts, but a share of a round has {len(share)}: give it "
            "more room, or deal rounds in more shares",
        )
    if share:
        yield DrawsLeased(replica, share, dict(member.versions))


def _draw(state: FlowState, source: PromptSource[str], count: int) -> PromptsDrawn:
    return PromptsDrawn(state.drawn, [source.at(draw) for draw in range(state.drawn, state.drawn + count)])

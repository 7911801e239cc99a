"""The status of a flow: what each role does, what it waits for, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from whetstone.rollout.audit import TRAINED
from whetstone.rollout.batch_composition import blocking_draw, dropped_counts
from whetstone.rollout.ledger import wasted_share
from whetstone.rollout.scheduler import FlowScheduler
from whetstone.rollout.state import FlowState, ModelState

# The most prompts of a replica in the status, oldest first.
_MOST_PROMPTS = 16


class Activity(Struct, frozen=True):
    """What a trainer does, and since when on the flow's clock."""

    description: str
    since: float


def batch_wait_reason(scheduler: FlowScheduler, name: str, now: float) -> str:
    """Return why there is no next batch of a model."""
    state, rules = scheduler.state, scheduler.rules
    model = state.models[name]
    behind = [other for other, its in state.models.items() if not its.ready or its.version < model.next_batch]
    if behind:
        return f"the trainers of {', '.join(behind)} have not reached version {model.next_batch}"
    if not scheduler.replicas:
        return "there is no rollout replica; start one: whetstone role rollout"
    served = {replica: member.versions.get(name, 0) for replica, member in scheduler.replicas.items()}
    fit = [replica for replica, version in served.items() if model.next_batch - version <= rules.staleness]
    ready = f"{len(model.buffer)} of {rules.prompts_per_step} groups are ready{_dropped(model)}"
    if not fit:
        return f"{ready}, and no replica serves weights {model.next_batch - rules.staleness} or later yet"
    if (draw := blocking_draw(state, rules, name)) is not None:
        why = (
            "its tokens would be too old for later batches"
            if rules.batch_composition == "wait"
            else "groups that were drawn a window later may not overtake it"
        )
        problem, owners = state.pending[draw].problem, _owners(scheduler, draw)
        return f"{ready}, and it waits for draw {draw} ({problem}), with {owners}: {why}"
    if not state.pending:
        return f"{ready}, and no prompt is in progress: the replicas ask for none"
    sampled = len(state.pending) - len(state.unassigned)
    first = min(state.pending)
    return (
        f"{ready}, {sampled} prompts are with {len(state.leases_by_replica)} replicas, "
        f"{len(state.unassigned)} with none; "
        f"the first is draw {first} ({state.pending[first].problem}), with {_owners(scheduler, first)}"
    )


def _dropped(model: ModelState) -> str:
    """Describe what was dropped since the last batch: if it is nearly everything, that is why there is no
    batch."""
    count = len(model.dropped_groups) + sum(model.lost_prompts.values())
    return f" and {count} were dropped ({dropped_counts(model)})" if count else ""


def _owners(scheduler: FlowScheduler, draw: int) -> str:
    owners = [scheduler.state.leases[serial].replica for serial in scheduler.state.pending[draw].leases]
    return ", ".join(owners) or "no replica"


def accounts(state: FlowState, name: str) -> dict[str, int]:
    """Return how many drawn prompts have each outcome for a model; the counts sum to all draws of this log.

    Outcomes: ``trained``, or the drop reason; ``under_way``; ``buffered`` for a later batch.
    """
    model = state.models[name]
    counts = {outcome: tally.groups for outcome, tally in model.audit.outcomes.items()}
    for reason in [item.drop_reason for item in model.dropped_groups]:
        counts[reason] = counts.get(reason, 0) + 1
    for counter, count in state.counts.items():
        if counter.startswith("lost/"):
            counts[counter.removeprefix("lost/")] = count
    counted = {TRAINED: counts.pop(TRAINED, 0), **dict(sorted(counts.items()))}
    return counted | {"buffered": len(model.buffer), "under_way": len(state.pending)}


def token_totals(state: FlowState, name: str) -> dict[str, int]:
    """Return the account of the tokens of a model, see ``TokenLedger.totals``.

    In flight are the tokens of replies that ended in a group that is not finished (``sampling``), of groups
    that wait for a batch (``buffered``), and of batches on which the trainer has not trained (``training``).
    """
    model = state.models[name]
    in_flight = {
        "sampling": sum(lease.reported.get(name, 0) for lease in state.leases.values()),
        "buffered": sum(item.facts.generated for item in model.buffer.values()),
        "training": sum(record.tokens for record in model.batches.values() if not record.trained),
    }
    return model.ledger.totals(in_flight)


def composition_costs(state: FlowState, name: str) -> dict[str, float]:
    """Return what the composition of batches has cost a model so far.

    ``wasted``: see ``wasted_share``. ``length_shift``: the Kolmogorov-Smirnov distance between the lengths of
    trained replies and of all replies of groups with a learning signal. Without data a figure is omitted.
    """
    costs = {
        "wasted": wasted_share(token_totals(state, name)),
        "length_shift": state.models[name].audit.figures().get("audit/usable_length_shift"),
    }
    return {name: value for name, value in costs.items() if value is not None}


def stalls(
    scheduler: FlowScheduler,
    trainers: Mapping[str, Activity],
    idle: Mapping[str, float],
    now: float,
    stall_s: float,
) -> list[str]:
    """Return a message for each role that waits longer than ``stall_s``.

    idle: replicas without a prompt, and since when.
    """
    messages: list[str] = []
    for name, activity in trainers.items():
        if activity.description.startswith("waits") and now - activity.since > stall_s:
            reason = batch_wait_reason(scheduler, name, now)
            messages.append(
                f"the trainer of {name} {activity.description} since {now - activity.since:.0f} s: {reason}"
            )
        elif now - activity.since > stall_s and not scheduler.state.models[name].ready:
            messages.append(f"the trainer of {name} has not connected for {now - activity.since:.0f} s")
    if not messages and scheduler.replicas and idle.keys() >= scheduler.replicas.keys():
        waited = now - max(idle[replica] for replica in scheduler.replicas)
        if waited > stall_s:
            activities = "; ".join(
                f"the trainer of {name} {activity.description} since {now - activity.since:.0f} s"
                for name, activity in trainers.items()
            )
            messages.append(
                f"no replica ({', '.join(sorted(scheduler.replicas))}) has a prompt, {waited:.0f} s: "
                f"{activities}"
            )
    return messages


def status_of(
    scheduler: FlowScheduler, trainers: Mapping[str, Activity], idle: Mapping[str, float], now: float
) -> dict[str, Any]:
    """Return the complete status as plain data."""
    state = scheduler.state
    granted = dict(scheduler.grant_times)
    return {
        "drawn": state.drawn,
        "wanted": len(state.pending),
        "idle": len(state.unassigned),
        "counts": dict(sorted(state.counts.items())),
        "models": {
            name: {
                "version": model.version,
                "next_batch": model.next_batch,
                "buffered": len(model.buffer),
                "batches_kept": len(model.batches),
                "accounts": accounts(state, name),
                "tokens": token_totals(state, name),
                "composition": composition_costs(state, name),
                "trainer": trainers[name].description,
                "since_s": round(now - trainers[name].since, 1),
                "waits_for": batch_wait_reason(scheduler, name, now)
                if trainers[name].description.startswith("waits")
                else "",
                "audit": model.audit.figures(),
            }
            for name, model in state.models.items()
        },
        "replicas": {
            name: {
                "versions": member.versions,
                "room": member.room,
                "holds": len(state.leases_by_replica.get(name, ())),
                "heard_s": round(now - member.last_heard, 1),
                "idle_s": round(now - idle[name], 1) if name in idle else None,
                "load": member.load,
                "prompts": _prompts(scheduler, name, granted, now),
            }
            for name, member in sorted(scheduler.replicas.items())
        },
    }


def _prompts(
    scheduler: FlowScheduler, replica: str, granted: Mapping[int, float], now: float
) -> list[dict[str, Any]]:
    """Return the prompts of a replica, and for how long it has held them."""
    leases = scheduler.state.leases
    mine = sorted(scheduler.state.leases_by_replica.get(replica, ()))[:_MOST_PROMPTS]
    return [
        {
            "draw": leases[serial].draw,
            "problem": scheduler.problem(leases[serial].draw),
            # Late leases are no longer timed.
            "since_s": round(now - granted[serial], 1) if serial in granted else None,
        }
        for serial in mine
    ]


class FlowUsage(Struct):
    """Accumulated seconds on the flow's clock.

    wall: since the first update. replicas: sum over all replicas since they joined. sampling: sum over
    replicas that have prompts. training: time in which a trainer has a batch and has not yet published its
    new weights. both: time in which a trainer has a batch and at least one replica has prompts.
    """

    wall: float = 0.0
    replicas: float = 0.0
    sampling: float = 0.0
    training: float = 0.0
    both: float = 0.0
    _last: float | None = None

    def advance(self, now: float, *, replicas: int, sampling: int, training: bool) -> None:
        """Add the time since the last call, in which ``sampling`` of the ``replicas`` had prompts."""
        passed = 0.0 if self._last is None else now - self._last
        self._last = now
        self.wall += passed
        self.replicas += replicas * passed
        self.sampling += sampling * passed
        self.training += passed if training else 0.0
        self.both += passed if training and sampling else 0.0

    def totals(self) -> dict[str, float]:
        """Return the totals as plain data."""
        return {
            "wall": self.wall,
            "replicas": self.replicas,
            "sampling": self.sampling,
            "training": self.training,
            "both": self.both,
        }


def shares(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    """Return ``replicas_busy``, ``trainer_busy`` and ``overlap`` between two totals, each from 0 to 1.

    Empty if no time passed or the flow restarted between them.
    """
    passed = {name: now[name] - before.get(name, 0.0) for name in now}
    if passed["wall"] <= 0 or min(passed.values()) < 0:
        return {}
    return {
        "replicas_busy": passed["sampling"] / passed["replicas"] if passed["replicas"] else 0.0,
        "trainer_busy": passed["training"] / passed["wall"],
        "overlap": passed["both"] / passed["wall"],
    }

"""What everybody in the dataflow does, what they wait for, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from whetstone.flow.audit import TRAINED
from whetstone.flow.books import Books, ModelBooks
from whetstone.flow.desk import Desk
from whetstone.flow.learning_signal import dropped

_SHOWN = 16
"""Prompts of a replica in the status, those first that it has had for longest."""


class Activity(Struct, frozen=True):
    """What somebody does, since when on the flow's clock."""

    what: str
    since: float


def what_a_batch_waits_for(desk: Desk, name: str, now: float) -> str:
    """Why there is no next batch of a model, in words."""
    books, rules = desk.books, desk.rules
    model = books.models[name]
    behind = [other for other, its in books.models.items() if not its.ready or its.version < model.next_use]
    if behind:
        return f"the trainers of {', '.join(behind)} have not come to version {model.next_use}"
    if not desk.members:
        return "there is no rollout replica; start one: whetstone role rollout"
    served = {replica: member.versions.get(name, 0) for replica, member in desk.members.items()}
    fit = [replica for replica, version in served.items() if model.next_use - version <= rules.staleness]
    ready = f"{len(model.buffer)} of {rules.prompts_per_step} groups are there{_dropped(model)}"
    if not fit:
        return f"{ready}, and no replica serves weights {model.next_use - rules.staleness} or later yet"
    if not books.wanted:
        return f"{ready}, and no prompt is under way: the replicas ask for none"
    sampled = len(books.wanted) - len(books.idle)
    first = min(books.wanted)
    return (
        f"{ready}, {sampled} prompts are with {len(books.owned)} replicas and {len(books.idle)} with none; "
        f"the first is draw {first} ({books.wanted[first].problem}), with {_owners(desk, first)}"
    )


def _dropped(model: ModelBooks) -> str:
    """What was dropped since the last batch: where it is nearly all, that is why there is none."""
    count = len(model.aside) + sum(model.lost.values())
    return f" and {count} were dropped ({dropped(model)})" if count else ""


def _owners(desk: Desk, draw: int) -> str:
    owners = [desk.books.leases[serial].replica for serial in desk.books.wanted[draw].leases]
    return ", ".join(owners) or "nobody"


def accounts(books: Books, name: str) -> dict[str, int]:
    """Where every prompt that was drawn is now, for a model; together they are all that this log has drawn.

    ``trained``, or the reason why not; ``under_way`` with replicas or with nobody; ``buffered`` for a batch
    to come.
    """
    model = books.models[name]
    found = {fate: tally.groups for fate, tally in model.audit.fates.items()}
    for reason in [item.reason for item in model.aside]:
        found[reason] = found.get(reason, 0) + 1
    for what, count in books.counts.items():
        if what.startswith("lost/"):
            found[what.removeprefix("lost/")] = count
    counted = {TRAINED: found.pop(TRAINED, 0), **dict(sorted(found.items()))}
    return counted | {"buffered": len(model.buffer), "under_way": len(books.wanted)}


def stalls(
    desk: Desk, trainers: Mapping[str, Activity], idle: Mapping[str, float], now: float, stall_s: float
) -> list[str]:
    """Who waits for longer than ``stall_s``, and for what, in words. ``idle``: replicas without a prompt, and
    since when."""
    found: list[str] = []
    for name, activity in trainers.items():
        if activity.what.startswith("waits") and now - activity.since > stall_s:
            why = what_a_batch_waits_for(desk, name, now)
            found.append(f"the trainer of {name} {activity.what} since {now - activity.since:.0f} s: {why}")
        elif now - activity.since > stall_s and not desk.books.models[name].ready:
            found.append(f"the trainer of {name} is not there since {now - activity.since:.0f} s")
    if not found and desk.members and idle.keys() >= desk.members.keys():
        waited = now - max(idle[replica] for replica in desk.members)
        if waited > stall_s:
            of = "; ".join(
                f"the trainer of {name} {activity.what} since {now - activity.since:.0f} s"
                for name, activity in trainers.items()
            )
            found.append(f"no replica ({', '.join(sorted(desk.members))}) has a prompt, {waited:.0f} s: {of}")
    return found


def status_of(
    desk: Desk, trainers: Mapping[str, Activity], idle: Mapping[str, float], now: float
) -> dict[str, Any]:
    """Everything at a glance, as plain data."""
    books = desk.books
    granted = dict(desk.granted)
    return {
        "drawn": books.drawn,
        "wanted": len(books.wanted),
        "idle": len(books.idle),
        "counts": dict(sorted(books.counts.items())),
        "models": {
            name: {
                "version": model.version,
                "next_batch": model.next_use,
                "buffered": len(model.buffer),
                "batches_kept": len(model.batches),
                "accounts": accounts(books, name),
                "trainer": trainers[name].what,
                "since_s": round(now - trainers[name].since, 1),
                "waits_for": what_a_batch_waits_for(desk, name, now)
                if trainers[name].what.startswith("waits")
                else "",
                "audit": model.audit.figures(),
            }
            for name, model in books.models.items()
        },
        "replicas": {
            name: {
                "versions": member.versions,
                "room": member.room,
                "holds": len(books.owned.get(name, ())),
                "heard_s": round(now - member.heard, 1),
                "idle_s": round(now - idle[name], 1) if name in idle else None,
                "load": member.load,
                "prompts": _prompts(desk, name, granted, now),
            }
            for name, member in sorted(desk.members.items())
        },
    }


def _prompts(desk: Desk, replica: str, granted: Mapping[int, float], now: float) -> list[dict[str, Any]]:
    """The prompts of a replica, and for how long it has had them."""
    leases = desk.books.leases
    mine = sorted(desk.books.owned.get(replica, ()))[:_SHOWN]
    return [
        {
            "draw": leases[serial].draw,
            "problem": desk.problem(leases[serial].draw),
            # One that is late is not timed any more.
            "since_s": round(now - granted[serial], 1) if serial in granted else None,
        }
        for serial in mine
    ]

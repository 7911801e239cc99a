"""What everybody in the dataflow does, what they wait for, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from whetstone.flow.desk import Desk


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
    ready = f"{len(model.buffer)} of {rules.prompts_per_step} groups are there"
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


def _owners(desk: Desk, draw: int) -> str:
    owners = [desk.books.leases[serial].replica for serial in desk.books.wanted[draw].leases]
    return ", ".join(owners) or "nobody"


def stalls(desk: Desk, trainers: Mapping[str, Activity], now: float, stall_s: float) -> list[str]:
    """Who waits for longer than ``stall_s``, and for what, in words."""
    found: list[str] = []
    for name, activity in trainers.items():
        if activity.what.startswith("waits") and now - activity.since > stall_s:
            why = what_a_batch_waits_for(desk, name, now)
            found.append(f"the trainer of {name} {activity.what} since {now - activity.since:.0f} s: {why}")
        elif now - activity.since > stall_s and not desk.books.models[name].ready:
            found.append(f"the trainer of {name} is not there since {now - activity.since:.0f} s")
    return found


def status_of(
    desk: Desk, trainers: Mapping[str, Activity], waiting: Mapping[str, float], now: float
) -> dict[str, Any]:
    """Everything at a glance, as plain data."""
    books = desk.books
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
                "waits_s": round(now - waiting[name], 1) if name in waiting else None,
                "load": member.load,
                "draws": sorted(books.leases[serial].draw for serial in books.owned.get(name, ()))[:16],
            }
            for name, member in sorted(desk.members.items())
        },
    }

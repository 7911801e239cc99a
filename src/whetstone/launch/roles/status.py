"""What the roles of a run do, in words: what each waits for, since when, its prompts and weights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whetstone.errors import UserError
from whetstone.flow.identity import Identity
from whetstone.flow.service.client import FlowClient
from whetstone.launch.recipe import load_recipe
from whetstone.launch.roles.told import LOGS, flow_url_of
from whetstone.launch.run_dir import is_locked
from whetstone.report.metrics import read_metrics

_ANSWERS_WITHIN_S = 5.0


def status_lines(run: Path, url: str | None) -> list[str]:
    """A line for each role. ``url``: of the flow, if it is not the one that the run's folder names.

    Raises UserError where there is no run.
    """
    if not (run / "recipe.yaml").exists():
        raise UserError(
            f"{run}: no run there (no recipe.yaml); give the folder that `whetstone train` writes to"
        )
    lines = [_run_line(run)]
    url = url or flow_url_of(run)
    if url is None:
        return [*lines, "it has no flow: it samples and learns in one process"]
    try:
        found = asyncio.run(_asked(url))
    except UserError as error:
        last = [f"{log.stem} said last: {_last_line(log)}" for log in sorted((run / LOGS).glob("*.log"))]
        return [*lines, f"flow: {error}", *last]
    return [*lines, *_told(url, found)]


async def _asked(url: str) -> dict[str, Any]:
    client = FlowClient(url, Identity({}), give_up_s=_ANSWERS_WITHIN_S)
    try:
        return await client.status()
    finally:
        await client.close()


def _run_line(run: Path) -> str:
    recipe, metrics = load_recipe(run / "recipe.yaml"), run / "metrics.jsonl"
    records = read_metrics(metrics) if metrics.exists() else []
    step = max((record["step"] for record in records if record["kind"] == "train"), default=0)
    who = (
        "a process of this machine trains there"
        if is_locked(run)
        else "no process of this machine trains there"
    )
    return f"{run}: step {step} of {recipe.trainer.steps or '?'} is made; {who}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing"


def _told(url: str, found: dict[str, Any]) -> Iterator[str]:
    counts = ", ".join(f"{count} {what}" for what, count in found["counts"].items())
    yield (
        f"flow at {url}: {found['drawn']} prompts drawn, {found['wanted']} under way, {found['idle']} "
        f"of them with nobody{f'; {counts}' if counts else ''}"
    )
    for name, its in found["models"].items():
        why = f"; it waits because {its['waits_for']}" if its["waits_for"] else ""
        yield (
            f"trainer of {name}: {its['trainer']}, since {its['since_s']:.0f} s; weights {its['version']} "
            f"are published, {its['buffered']} groups are there for the batch of version "
            f"{its['next_batch']}{why}"
        )
    if not found["replicas"]:
        yield "there is no rollout replica; start one: whetstone role rollout"
    for name, its in found["replicas"].items():
        yield f"replica {name}: {_replica(its)}"


def _replica(its: dict[str, Any]) -> str:
    served = ", ".join(
        f"weights {version}" if version >= 0 else "no weights yet" for version in its["versions"].values()
    )
    said = f"serves {served}, heard {its['heard_s']:.0f} s ago, has {its['holds']} of {its['room']} prompts"
    if its["draws"]:
        more = ", …" if its["holds"] > len(its["draws"]) else ""
        said += f" (draws {', '.join(map(str, its['draws']))}{more})"
    if its["waits_s"] is not None:
        said += f", waits for news since {its['waits_s']:.0f} s"
    return said

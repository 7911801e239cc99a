"""Describes what the roles of a run do: what each waits for, since when, its prompts and weights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.run_lock import is_locked
from whetstone.report.audit import audit_rows, read_audit
from whetstone.report.ledger import latest_tokens, ledger_line
from whetstone.report.metrics import Record, read_metrics
from whetstone.report.pace import measured_flow
from whetstone.report.run_data import read_recipe
from whetstone.rollout.flow_rules import FlowRefusal
from whetstone.rollout.identity import Identity
from whetstone.rollout.service.client import FlowClient
from whetstone.run.recipe import load_recipe
from whetstone.run.run_dir import LOGS, flow_url_of

_TIMEOUT_S = 10.0


_PROMPTS_SHOWN = 3


def status_lines(run: Path, url: str | None) -> list[str]:
    """Return a line for each role. ``url``: the flow's address, if it differs from that in the run's folder.

    Raises UserError if there is no run.
    """
    if not (run / "recipe.yaml").exists():
        raise UserError(
            f"{run}: no run there (no recipe.yaml); give the folder that `whetstone train` writes to"
        )
    return [_run_line(run), *role_lines(run, url)]


def role_lines(run: Path, url: str | None) -> list[str]:
    """Return these lines without that of the run. For a complete run without a flow, they come from its
    folder."""
    given, url = url, url or flow_url_of(run)
    if url is None:
        return ["it has no flow: it samples and trains in one process", *_recorded_lines(run)]
    try:
        found = asyncio.run(_flow_status(url))
    except (UserError, TimeoutError) as error:
        if given is None and _is_complete(run):
            return ["its roles have ended; the figures are from its folder", *_recorded_lines(run)]
        if isinstance(error, FlowRefusal):
            return [f"flow: {error}", *_last_words(run)]
        why = str(error) or f"no answer within {_TIMEOUT_S:.0f} s"
        return [f"flow: none answers at {url} ({why})", *pace_lines(run), *_last_words(run)]
    try:
        told = list(_flow_lines(url, found))
    except (KeyError, TypeError):
        told = [f"flow at {url}: it has another version; use the whetstone version that started it"]
    return [*told, *pace_lines(run), *_last_words(run, "trainer")]


async def _flow_status(url: str) -> dict[str, Any]:
    client = FlowClient(url, Identity({}))
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await client.status(single_attempt=True)
    finally:
        await client.close()


def _recorded_lines(run: Path) -> Iterator[str]:
    """Describe the recorded dataflow of a run, by model."""
    for name in load_recipe(run / "recipe.yaml").environment.models:
        folder = _folder_of(run, name)
        if tokens := latest_tokens(_train_records(folder)):
            yield f"tokens of {name}: {ledger_line(tokens)}"
        kept = read_audit(folder)
        if kept is not None:
            yield f"prompts of {name}, up to step {kept.step}: {_describe_accounts(kept.accounts)}"
            yield from _audit_lines(name, kept.figures)
    yield from pace_lines(run)


def pace_lines(run: Path) -> Iterator[str]:
    """Yield for each model of an asynchronous run whether its replies outlast the staleness, and what would
    help; nothing if too few replies have ended."""
    try:
        names = load_recipe(run / "recipe.yaml").environment.models
    except UserError:
        # A run of another version may have a recipe that this one cannot read.
        return
    for name in names:
        folder = _folder_of(run, name)
        found = measured_flow(folder, read_recipe(run / "recipe.yaml"), _train_records(folder))
        for title, text in () if found is None else found.advice():
            yield f"pace of {name}: {title}: {text}"


def _folder_of(run: Path, model: str) -> Path:
    return run / model if (run / model / "metrics.jsonl").exists() else run


def _audit_lines(name: str, figures: Mapping[str, float]) -> Iterator[str]:
    rows = [f"{title}: {value}" for title, value in audit_rows(figures)]
    if rows:
        yield f"audit of {name}: {'; '.join(rows)}"


def _steps(run: Path) -> tuple[int, int]:
    """Return the number of steps made, and the total (0 if it is not known yet)."""
    recipe = load_recipe(run / "recipe.yaml")
    made = max((record["step"] for record in _train_records(run)), default=0)
    return made, 0 if recipe.trainer.passes else recipe.trainer.steps


def _train_records(run: Path) -> list[Record]:
    metrics = run / "metrics.jsonl"
    records = read_metrics(metrics) if metrics.exists() else []
    return [record for record in records if record["kind"] == "train"]


def _is_complete(run: Path) -> bool:
    try:
        made, steps = _steps(run)
    except UserError:
        # A run of another version may have a recipe that this one cannot read.
        return False
    return 0 < made == steps and not is_locked(run)


def _run_line(run: Path) -> str:
    made, steps = _steps(run)
    if is_locked(run):
        who = "a process of this machine trains there"
    elif 0 < made == steps:
        who = "the run is complete"
    else:
        who = "no process of this machine trains there; the command that started it resumes it"
    return f"{run}: step {made} of {steps or '?'} is complete; {who}"


def _last_words(run: Path, role: str = "*") -> list[str]:
    return [f"{log.stem} last line: {_last_line(log)}" for log in sorted((run / LOGS).glob(f"{role}.log"))]


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing"


def _flow_lines(url: str, found: dict[str, Any]) -> Iterator[str]:
    troubles = [
        f"{count} {_TROUBLES[what]}" for what, count in found["counts"].items() if count and what in _TROUBLES
    ]
    yield (
        f"flow at {url}: {found['drawn']} prompts drawn, {found['wanted']} in progress, {found['idle']} "
        f"of them without a replica{f'; so far {_comma_separated(troubles)}' if troubles else ''}"
    )
    for name, its in found["models"].items():
        why = f"; it waits: {its['waits_for']}" if its["waits_for"] else ""
        yield (
            f"trainer of {name}: {its['trainer']}, since {its['since_s']:.0f} s; weights {its['version']} "
            f"are published, {its['buffered']} groups are ready for the batch of version "
            f"{its['next_batch']}{why}"
        )
        yield f"prompts of {name}: {_describe_accounts(its['accounts'])}"
        yield f"tokens of {name}: {ledger_line(its['tokens'])}"
        yield from _audit_lines(name, its["audit"])
    if not found["replicas"]:
        yield "there is no rollout replica; start one: whetstone role rollout"
    for name, its in found["replicas"].items():
        yield f"replica {name}: {_replica(its)}"


_TROUBLES = {
    "freed/dead": "leases of silent replicas",
    "freed/late": "leases that were late",
    "freed/failed": "prompts that failed",
    "freed/refused": "groups that were rejected",
    "freed/returned": "leases given back",
    "duplicate": "duplicate groups",
    "revoked": "groups of leases that had ended",
    "groups/replayed": "groups handed out again",
}


def _describe_accounts(accounts: Mapping[str, int]) -> str:
    dropped = [
        f"{count} {fate}"
        for fate, count in accounts.items()
        if fate not in ("trained", "buffered", "under_way")
    ]
    return (
        f"{accounts['trained']} trained, dropped: {_comma_separated(dropped) or 'none'}; "
        f"{accounts['buffered']} wait "
        f"for a batch, {accounts['under_way']} are in progress"
    )


def _comma_separated(words: list[str]) -> str:
    return ", ".join(words)


def _replica(its: dict[str, Any]) -> str:
    served = ", ".join(
        f"weights {version}" if version >= 0 else "no weights yet" for version in its["versions"].values()
    )
    said = f"serves {served}, heard {its['heard_s']:.0f} s ago, has {its['holds']} of {its['room']} prompts"
    if its["prompts"]:
        shown = [_prompt(each) for each in its["prompts"][:_PROMPTS_SHOWN]]
        said += f" ({_comma_separated(shown)}{', …' if its['holds'] > len(shown) else ''})"
    if its["idle_s"] is not None:
        said += f", waits for prompts since {its['idle_s']:.0f} s"
    return said


def _prompt(its: dict[str, Any]) -> str:
    since = "late" if its["since_s"] is None else f"since {its['since_s']:.0f} s"
    return f"draw {its['draw']} {its['problem']} {since}"

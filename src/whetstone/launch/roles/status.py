"""What the roles of a run do, in words: what each waits for, since when, its prompts and weights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whetstone.errors import UserError
from whetstone.flow.identity import Identity
from whetstone.flow.refusal import FlowRefusal
from whetstone.flow.service.client import FlowClient
from whetstone.launch.recipe import load_recipe
from whetstone.launch.roles.told import LOGS, flow_url_of
from whetstone.launch.run_lock import is_locked
from whetstone.report.audit import AUDIT_FILE, audit_rows, read_audit
from whetstone.report.metrics import read_metrics

_ANSWERS_WITHIN_S = 10.0


_PROMPTS_SHOWN = 3


def status_lines(run: Path, url: str | None) -> list[str]:
    """A line for each role. ``url``: of the flow, if it is not the one that the run's folder names.

    Raises UserError where there is no run.
    """
    if not (run / "recipe.yaml").exists():
        raise UserError(
            f"{run}: no run there (no recipe.yaml); give the folder that `whetstone train` writes to"
        )
    return [_run_line(run), *role_lines(run, url)]


def role_lines(run: Path, url: str | None) -> list[str]:
    """The same without the line of the run itself. Where a complete run has no flow any more, its folder is
    read."""
    given, url = url, url or flow_url_of(run)
    if url is None:
        return ["it has no flow: it samples and learns in one process"]
    try:
        found = asyncio.run(_asked(url))
    except (UserError, TimeoutError) as error:
        if given is None and _is_complete(run):
            return ["its roles have ended; the figures are those of its folder", *_kept_lines(run)]
        if isinstance(error, FlowRefusal):
            return [f"flow: {error}", *_last_words(run)]
        why = str(error) or f"no answer within {_ANSWERS_WITHIN_S:.0f} s"
        return [f"flow: none answers at {url} ({why})", *_last_words(run)]
    try:
        told = list(_told(url, found))
    except (KeyError, TypeError):
        told = [f"flow at {url}: it is of another version; ask it with the whetstone that started it"]
    return [*told, *_last_words(run, "trainer")]


async def _asked(url: str) -> dict[str, Any]:
    client = FlowClient(url, Identity({}))
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_S):
            return await client.status(at_once=True)
    finally:
        await client.close()


def _kept_lines(run: Path) -> Iterator[str]:
    """What the folder of a run that is over records of its dataflow, model by model."""
    for name in load_recipe(run / "recipe.yaml").workflow.models:
        kept = read_audit(run / name if (run / name / AUDIT_FILE).exists() else run)
        if kept is not None:
            yield f"prompts of {name}, up to step {kept.step}: {_accounted(kept.accounts)}"
            yield from _audit_lines(name, kept.figures)


def _audit_lines(name: str, figures: Mapping[str, float]) -> Iterator[str]:
    rows = [f"{title}: {value}" for title, value in audit_rows(figures)]
    if rows:
        yield f"audit of {name}: {'; '.join(rows)}"


def _steps(run: Path) -> tuple[int, int]:
    """How many steps a run has made, and how many it is to make (0 where that is not known yet)."""
    recipe, metrics = load_recipe(run / "recipe.yaml"), run / "metrics.jsonl"
    records = read_metrics(metrics) if metrics.exists() else []
    made = max((record["step"] for record in records if record["kind"] == "train"), default=0)
    return made, 0 if recipe.trainer.passes else recipe.trainer.steps


def _is_complete(run: Path) -> bool:
    try:
        made, steps = _steps(run)
    except UserError:  # of another version
        return False
    return 0 < made == steps and not is_locked(run)


def _run_line(run: Path) -> str:
    made, steps = _steps(run)
    if is_locked(run):
        who = "a process of this machine trains there"
    elif 0 < made == steps:
        who = "the run is complete"
    else:
        who = "no process of this machine trains there; the command that began it goes on"
    return f"{run}: step {made} of {steps or '?'} is made; {who}"


def _last_words(run: Path, role: str = "*") -> list[str]:
    return [f"{log.stem} said last: {_last_line(log)}" for log in sorted((run / LOGS).glob(f"{role}.log"))]


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing"


def _told(url: str, found: dict[str, Any]) -> Iterator[str]:
    troubles = [
        f"{count} {_TROUBLES[what]}" for what, count in found["counts"].items() if count and what in _TROUBLES
    ]
    yield (
        f"flow at {url}: {found['drawn']} prompts drawn, {found['wanted']} under way, {found['idle']} "
        f"of them with nobody{f'; so far {_listed(troubles)}' if troubles else ''}"
    )
    for name, its in found["models"].items():
        why = f"; it waits because {its['waits_for']}" if its["waits_for"] else ""
        yield (
            f"trainer of {name}: {its['trainer']}, since {its['since_s']:.0f} s; weights {its['version']} "
            f"are published, {its['buffered']} groups are there for the batch of version "
            f"{its['next_batch']}{why}"
        )
        yield f"prompts of {name}: {_accounted(its['accounts'])}"
        yield from _audit_lines(name, its["audit"])
    if not found["replicas"]:
        yield "there is no rollout replica; start one: whetstone role rollout"
    for name, its in found["replicas"].items():
        yield f"replica {name}: {_replica(its)}"


_TROUBLES = {
    "freed/dead": "leases of replicas that fell silent",
    "freed/late": "leases that were late",
    "freed/failed": "prompts that failed",
    "freed/refused": "groups that were refused",
    "freed/returned": "leases given back",
    "duplicate": "groups that came twice",
    "revoked": "groups of leases that had ended",
    "groups/replayed": "groups handed out again",
}


def _accounted(accounts: Mapping[str, int]) -> str:
    dropped = [
        f"{count} {fate}"
        for fate, count in accounts.items()
        if fate not in ("trained", "buffered", "under_way")
    ]
    return (
        f"{accounts['trained']} trained, dropped: {_listed(dropped) or 'none'}; {accounts['buffered']} wait "
        f"for a batch, {accounts['under_way']} are under way"
    )


def _listed(words: list[str]) -> str:
    return ", ".join(words)


def _replica(its: dict[str, Any]) -> str:
    served = ", ".join(
        f"weights {version}" if version >= 0 else "no weights yet" for version in its["versions"].values()
    )
    said = f"serves {served}, heard {its['heard_s']:.0f} s ago, has {its['holds']} of {its['room']} prompts"
    if its["prompts"]:
        shown = [_prompt(each) for each in its["prompts"][:_PROMPTS_SHOWN]]
        said += f" ({_listed(shown)}{', …' if its['holds'] > len(shown) else ''})"
    if its["idle_s"] is not None:
        said += f", waits for prompts since {its['idle_s']:.0f} s"
    return said


def _prompt(its: dict[str, Any]) -> str:
    since = "late" if its["since_s"] is None else f"since {its['since_s']:.0f} s"
    return f"draw {its['draw']} {its['problem']} {since}"

"""``whetstone doctor --attack``: the attack suite on this machine, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.attacks.corpus import load_corpus
from whetstone.attacks.suite import Outcome, run_trials, trials
from whetstone.progress import Progress


def run_attacks(*, as_json: bool) -> int:
    """Run every attack and twin. Status 0 when each got what it must get, 1 when not."""
    wanted = trials(load_corpus())
    with Progress() as progress:
        outcomes = list(progress.track(run_trials(wanted), "attacking", len(wanted)))
    failures = [outcome for outcome in outcomes if outcome.failure]
    if as_json:
        print(json.dumps(_report(outcomes), indent=2))
    else:
        _show(outcomes, Console())
    return 1 if failures else 0


def _report(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same findings for programs."""
    return {
        "isolation": outcomes[0].judgement.isolation,
        "classes": {name: _counts(of_class) for name, of_class in _by_class(outcomes).items()},
        "failures": [{**_named(o), "failure": o.failure} for o in outcomes if o.failure],
        "not_stopped": [{**_named(o), "why": o.known} for o in outcomes if o.known],
        "held": not any(o.failure for o in outcomes),
    }


def _named(outcome: Outcome) -> dict[str, str]:
    trial = outcome.trial
    return {
        "class": trial.class_name,
        "name": trial.name,
        "role": trial.role,
        "verdict": outcome.judgement.verdict.value,
    }


def _by_class(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    classes: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        classes.setdefault(outcome.trial.class_name, []).append(outcome)
    return classes


def _counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    attacks = [o for o in outcomes if o.trial.role == "attack"]
    honest = [o for o in outcomes if o.trial.role != "attack"]
    return {
        "attacks": len(attacks),
        "stopped": sum(not o.failure and not o.known for o in attacks),
        "honest": len(honest),
        "accepted": sum(o.judgement.accepted for o in honest),
    }


def _show(outcomes: Sequence[Outcome], console: Console) -> None:
    table = Table("class", box=None, pad_edge=False)
    for column in ("attacks", "stopped", "honest programs", "accepted"):
        table.add_column(column, justify="right")
    for name, of_class in _by_class(outcomes).items():
        table.add_row(name.replace("_", " "), *map(str, _counts(of_class).values()))
    totals = _counts(outcomes)
    table.add_row(Text("all", style="bold"), *map(str, totals.values()))
    console.print(table)
    for outcome in outcomes:
        if outcome.known:
            console.print(Text(f"not stopped here: {_title(outcome)}: {outcome.known}", style="yellow"))
    failures = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failures:
        console.print(Text(f"{_title(outcome)}: {outcome.failure}", style="red"))
    isolation = outcomes[0].judgement.isolation
    verdict = (
        f"{len(failures)} programs did not get what they must get"
        if failures
        else "no attack was accepted, every honest program was"
    )
    console.print(Text(f"{verdict} (isolation: {isolation})", style="bold red" if failures else "bold green"))


def _title(outcome: Outcome) -> str:
    trial = outcome.trial
    kind = "" if trial.role == "attack" else f" ({trial.role})"
    return f"{trial.class_name.replace('_', ' ')} / {trial.name}{kind}"

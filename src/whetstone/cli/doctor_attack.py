"""``whetstone doctor --attack``: run the attack suite on this machine; print a table or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from whetstone.core.progress import Progress
from whetstone.testing.attacks.corpus import load_corpus
from whetstone.testing.attacks.suite import TrialOutcome, corpus_trials, run_trials


def run_attacks(*, environment: str | None, as_json: bool) -> int:
    """Run every attack and twin, with the packages and the Python of ``environment``.

    Returns 0 if all judgements are as expected, otherwise 1. Raises UserError for an unknown environment.
    """
    trials = corpus_trials(load_corpus())
    with Progress() as progress:
        outcomes = list(progress.track(run_trials(trials, environment=environment), "attacking", len(trials)))
    failures = [outcome for outcome in outcomes if outcome.failure]
    if as_json:
        print(json.dumps(_report(outcomes), indent=2))
    else:
        _show(outcomes, Console())
    return 1 if failures else 0


def _report(outcomes: Sequence[TrialOutcome]) -> dict[str, Any]:
    """Return the findings as JSON values."""
    return {
        "isolation": outcomes[0].judgement.isolation,
        "classes": {name: _counts(of_class) for name, of_class in _by_class(outcomes).items()},
        "failures": [{**_trial_entry(o), "failure": o.failure} for o in outcomes if o.failure],
        "not_stopped": [{**_trial_entry(o), "why": o.known} for o in outcomes if o.known],
        "held": not any(o.failure for o in outcomes),
    }


def _trial_entry(outcome: TrialOutcome) -> dict[str, str]:
    trial = outcome.trial
    return {
        "class": trial.class_name,
        "name": trial.name,
        "role": trial.role,
        "verdict": outcome.judgement.verdict.value,
    }


def _by_class(outcomes: Sequence[TrialOutcome]) -> dict[str, list[TrialOutcome]]:
    classes: dict[str, list[TrialOutcome]] = {}
    for outcome in outcomes:
        classes.setdefault(outcome.trial.class_name, []).append(outcome)
    return classes


def _counts(outcomes: Sequence[TrialOutcome]) -> dict[str, int]:
    attacks = [o for o in outcomes if o.trial.role == "attack"]
    honest = [o for o in outcomes if o.trial.role != "attack"]
    return {
        "attacks": len(attacks),
        "stopped": sum(not o.failure and not o.known for o in attacks),
        "honest": len(honest),
        "accepted": sum(o.judgement.accepted for o in honest),
    }


def _show(outcomes: Sequence[TrialOutcome], console: Console) -> None:
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
        f"{len(failures)} programs got an unexpected verdict"
        if failures
        else "no attack was accepted, and every honest program was"
    )
    console.print(Text(f"{verdict} (isolation: {isolation})", style="bold red" if failures else "bold green"))


def _title(outcome: TrialOutcome) -> str:
    trial = outcome.trial
    kind = "" if trial.role == "attack" else f" ({trial.role})"
    return f"{trial.class_name.replace('_', ' ')} / {trial.name}{kind}"

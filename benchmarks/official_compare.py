"""Two graders over the same programs: what the comparisons with EvalPlus and LiveCodeBench share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whetstone.judge import Judge
from whetstone_graders.form import OfficialForm

ATTACK = "attack"


@dataclass(frozen=True)
class Trial:
    """One program for one problem; ``kind`` says how it was made, ``form`` how our judge judges it."""

    name: str
    kind: str
    code: str
    form: OfficialForm


def ours(trials: Iterable[Trial], workers: int) -> Iterator[tuple[bool, str]]:
    """Whether our judge accepts each program in its official form, and the reason if not."""
    with Judge(workers=workers, stop_at_first_failure=True) as judge:
        pairs = ((trial.form.problem, trial.form.program(trial.code)) for trial in trials)
        for judged in judge.judge_many(pairs):
            yield judged.accepted, f"{judged.verdict.value}: {judged.reason}"


def theirs(
    python: Path, script: str, arguments: Sequence[str], orders: Iterable[dict[str, Any]]
) -> list[Any]:
    """Run ``script`` with their Python: one JSON line an order in, one JSON line an answer out."""
    lines = "".join(json.dumps(order) + "\n" for order in orders)
    command = [str(python), "-W", "ignore", "-c", script, *arguments]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-4000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def report(
    trials: Sequence[Trial], our: Sequence[tuple[bool, str]], their: Sequence[tuple[bool, str]]
) -> None:
    """Print the counts by kind, and every disagreement."""
    table: Counter[tuple[str, str]] = Counter()
    for trial, (mine, _), (other, _) in zip(trials, our, their, strict=True):
        table[trial.kind, "programs"] += 1
        table[trial.kind, "accepted by both" if mine and other else "refused by both"] += mine == other
        table[trial.kind, "differ"] += mine != other
    columns = ("programs", "accepted by both", "refused by both", "differ")
    print(f"| kind | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}")
    for kind in dict.fromkeys(trial.kind for trial in trials):
        print(f"| {kind} | {' | '.join(str(table[kind, column]) for column in columns)} |")
    total = [sum(n for (_, name), n in table.items() if name == column) for column in columns]
    print(f"| all | {' | '.join(map(str, total))} |\n")
    for trial, (mine, reason), (other, detail) in zip(trials, our, their, strict=True):
        if mine != other:
            who = "we accept, they do not" if mine else "they accept, we do not"
            print(f"- {trial.name} ({trial.kind}): {who}. Ours: {reason}. Theirs: {detail}")

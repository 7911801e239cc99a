"""Evaluations and their comparison, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whetstone.errors import UserError
from whetstone.evaluate.manifest import differences
from whetstone.evaluate.passk import Estimate, paired_difference
from whetstone.evaluate.results import Evaluation, TableRow, load_evaluation


def print_evaluation(evaluation: Evaluation, console: Console | None = None) -> None:
    """The estimates with intervals, by difficulty and concept where problems have them, and what
    the figures rest on: verdicts, truncation, replies and problems without a verdict."""
    console = console or Console()
    plan = evaluation.plan
    title = f"n = {plan.n}, temperature {plan.temperature:g}, at most {plan.max_tokens} tokens"
    table = Table("", "mean", "95% interval", "problems", title=title, title_justify="left")
    for k, estimate in evaluation.pass_at.items():
        name = f"pass@1 (avg@{plan.n})" if k == 1 and plan.n > 1 else f"pass@{k}"
        table.add_row(name, *_cells(estimate))
    console.print(table)
    for name, rows in (("difficulty", evaluation.by_difficulty), ("concept", evaluation.by_concept)):
        if len(rows) > 1:
            console.print(_breakdown(name, rows))
    for line in _notes(evaluation):
        console.print(line, highlight=False, soft_wrap=True)


def print_comparison(a: str, b: str, console: Console | None = None) -> None:
    """The paired difference b - a for every k that both have, and what else differs between them.

    Raises UserError when a folder holds no evaluation, or the two share no problem.
    """
    console = console or Console()
    first, second = load_evaluation(a, with_samples=False), load_evaluation(b, with_samples=False)
    table = Table("", "a", "b", "b - a", "95% interval", "better", "worse", "equal")
    counts = (0, 0, 0)
    for k in sorted(first.pass_at.keys() & second.pass_at.keys()):
        try:
            found = paired_difference(first.values(k), second.values(k), seed=first.plan.seed)
        except ValueError as error:
            raise UserError(f"{a} and {b}: {error}; compare evaluations of the same benchmark") from None
        interval = f"{found.low * 100:+.1f} to {found.high * 100:+.1f}"
        table.add_row(
            f"pass@{k}",
            _percent(found.a),
            _percent(found.b),
            f"{found.value * 100:+.1f}",
            interval,
            *(str(count) for count in (found.better, found.worse, found.equal)),
        )
        if k == 1:
            counts = (found.better + found.worse + found.equal, found.only_a, found.only_b)
    console.print(table)
    console.print(f"{counts[0]} problems in both, {counts[1]} only in a, {counts[2]} only in b")
    changed = differences(first.manifest, second.manifest)
    if changed:
        console.print(f"also different: {escape(', '.join(changed))}", highlight=False, soft_wrap=True)


def _breakdown(name: str, rows: Sequence[TableRow]) -> Table:
    table = Table(name, "pass@1", "95% interval", "problems")
    for row in rows:
        table.add_row(escape(row.name), *_cells(row.pass_1))
    return table


def _cells(estimate: Estimate) -> tuple[str, str, str]:
    interval = f"{estimate.low * 100:.1f} to {estimate.high * 100:.1f}"
    return _percent(estimate.value), interval, str(estimate.problems)


def _notes(evaluation: Evaluation) -> list[str]:
    shares = evaluation.shares
    verdicts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in shares.verdicts.items())
    notes = [
        f"{shares.samples} replies of {shares.mean_tokens:.0f} tokens on average: {verdicts}",
        f"cut at the token limit {_percent(shares.truncated)}, without code {_percent(shares.no_code)}",
    ]
    unjudged = sum(problem.unjudged for problem in evaluation.problems)
    if unjudged:
        whole = len(evaluation.unjudged_problems)
        notes.append(
            f"{unjudged} replies have no verdict and do not count; {whole} problems have none at all"
        )
    refused = [problem for problem in evaluation.problems if problem.error]
    if refused:
        notes.append(
            f"{len(refused)} problems could not be put to the model and count as failed, "
            f"such as {escape(refused[0].error)}"
        )
    return notes


def _percent(value: float) -> str:
    return f"{value * 100:.1f}%"

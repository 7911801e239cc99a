"""Print evaluations and benchmarks in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whetstone.evaluate.benchmarks import BENCHMARKS
from whetstone.evaluate.passk import Estimate
from whetstone.evaluate.plan_file import shipped_plans
from whetstone.evaluate.results import PASS_1, Evaluation, TableRow
from whetstone.evaluate.usage import EvaluationUsage


def print_evaluation(
    name: str, evaluation: Evaluation, console: Console | None = None, *, usage: EvaluationUsage | None = None
) -> None:
    """Print the estimates with intervals, by each label of the problems, and their basis: verdicts,
    truncation, turns, thinking, and replies that count as failed without a verdict."""
    console = console or Console()
    plan = evaluation.plan
    sampling = f"n = {plan.n}, temperature {plan.temperature:g}, at most {plan.max_tokens} tokens"
    console.print(f"[bold]{escape(name)}[/]: {sampling}", highlight=False, soft_wrap=True)
    table = Table("", "mean", "95% interval", "problems")
    for name, estimate in evaluation.estimates.items():
        table.add_row(
            f"pass@1 (avg@{plan.n})" if name == PASS_1 and plan.n > 1 else name, *_cells(name, estimate)
        )
    console.print(table)
    for label, rows in evaluation.tables.items():
        console.print(_breakdown(label, rows, evaluation.headline[0]))
    for line in _notes(evaluation):
        console.print(line, highlight=False, soft_wrap=True)
    if usage is not None:
        console.print(usage.line, highlight=False, soft_wrap=True)
    for line in _warnings(evaluation):
        console.print(f"[bold red]warning:[/] {escape(line)}", highlight=False, soft_wrap=True)


def print_benchmarks() -> None:
    """Print the benchmarks by name: their data, and the tests that their prompts show."""
    table = Table()
    # Names must stay on one line, so that they can be copied.
    table.add_column("benchmark", no_wrap=True)
    for column in ("--data", "the prompt shows"):
        table.add_column(column, overflow="fold")
    for name, entry in BENCHMARKS.items():
        table.add_row(name, escape(entry.data), escape(entry.shows))
    Console().print(table)


def print_plans() -> None:
    """Print the plans that ship, and the benchmarks of each."""
    table = Table("--plan", "what it measures")
    for name, about in shipped_plans().items():
        table.add_row(name, escape(about))
    Console().print(table)


def percent(value: float) -> str:
    """Return a share of 1 as a percentage with one decimal."""
    return f"{value * 100:.1f}%"


def shown(name: str, value: float) -> str:
    """Return an estimate as text: a pass@k as a percentage, a reward as a number."""
    return percent(value) if name.startswith("pass@") else f"{value:.3f}"


def change(name: str, value: float) -> str:
    """Return a difference of two estimates as text, that of a pass@k in percentage points."""
    return f"{value * 100:+.1f}" if name.startswith("pass@") else f"{value:+.3f}"


def interval(name: str, low: float, high: float, *, sign: str = "") -> str:
    """Return the bounds of an estimate as text. ``sign`` is "+" for a difference."""
    scale, digits = (100, 1) if name.startswith("pass@") else (1, 3)
    return f"{low * scale:{sign}.{digits}f} to {high * scale:{sign}.{digits}f}"


def _breakdown(label: str, rows: Sequence[TableRow], name: str) -> Table:
    table = Table(label, name, "95% interval", "problems")
    for row in rows:
        table.add_row(escape(row.name), *_cells(name, row.estimate))
    return table


def _cells(name: str, estimate: Estimate) -> tuple[str, str, str]:
    bounds = interval(name, estimate.low, estimate.high)
    return shown(name, estimate.value), bounds, str(estimate.problems)


def _notes(evaluation: Evaluation) -> list[str]:
    shares = evaluation.shares
    verdicts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in shares.verdicts.items())
    replies = f"{shares.samples} replies of {shares.mean_tokens:.0f} tokens on average"
    if shares.mean_turns > 1:
        replies += f", in {shares.mean_turns:.1f} turns"
    notes = [f"{replies}: {verdicts}" if verdicts else replies]
    cut = f"cut at the token limit {percent(shares.truncated)}"
    notes.append(f"{cut}, without code {percent(shares.no_code)}" if verdicts else cut)
    if evaluation.episode:
        means = (f"{escape(name)} {value:.3f}" for name, value in evaluation.episode.items())
        notes.append(f"means of the environment's metrics: {', '.join(means)}")
    if shares.thinking:
        tokens = shares.mean_thinking_tokens
        length = f"{tokens:.0f} tokens, " if tokens is not None else ""
        notes.append(
            f"{percent(shares.thinking)} think, for {length}{shares.mean_thinking_characters:.0f} characters "
            f"on average; {percent(shares.unfinished_thinking)} of all end inside their thinking"
        )
    return notes


def _warnings(evaluation: Evaluation) -> list[str]:
    """Return the replies without a result, and verdicts that could have been forged."""
    shares, warnings = evaluation.shares, list[str]()
    effect = "count as not right" if evaluation.pass_at else "are not in the mean"
    if shares.failed:
        first = next(problem for problem in evaluation.problems if problem.failed)
        warnings.append(
            f"{percent(shares.failed)} of the replies could not be had and {effect}, such as one to "
            f"{first.id}: {first.error}"
        )
    if shares.judge_error:
        first = next(problem for problem in evaluation.problems if problem.judge_errors)
        without, hint = "have no verdict or reward", ""
        if shares.verdicts:
            without, hint = (
                "could not be judged",
                "; `whetstone doctor` says what keeps the judge from working",
            )
        warnings.append(
            f"{percent(shares.judge_error)} of the replies {without} and {effect}, such as one to "
            f"{first.id}{hint}"
        )
    if warnings:
        warnings.append("the same command with the same --out tries these replies again, and only these")
    if shares.shared_interpreter:
        first = next(problem for problem in evaluation.problems if problem.shared_interpreter)
        warnings.append(
            f"{percent(shares.shared_interpreter)} of the verdicts were reached in the program's own "
            f"interpreter, where a program can forge them, such as one on {first.id}"
        )
    return warnings

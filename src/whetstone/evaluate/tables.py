"""The results of an evaluation, or the comparison of two, as rows and lines of text, and their print-out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whetstone.evaluate.folder import EvaluationUsage
from whetstone.evaluate.manifest import differences
from whetstone.evaluate.passk import Estimate
from whetstone.evaluate.results import (
    PASS_1,
    REWARD,
    Evaluation,
    ProblemResult,
    compared,
    evaluation_pairs,
    evaluations_in,
    load_evaluation,
    paired_differences,
)

Rows = list[list[str]]


class ResultTable(Struct, frozen=True):
    """The estimates of an evaluation, or their paired differences, as text. ``notes`` are lines about what
    they are computed from."""

    heads: list[str]
    rows: Rows
    notes: list[str]


def results_of(evaluation: Evaluation) -> ResultTable:
    """Return the estimates of an evaluation with their intervals."""
    n = evaluation.plan.n
    rows = [
        [f"{PASS_1} (avg@{n})" if name == PASS_1 and n > 1 else name, *_cells(name, estimate)]
        for name, estimate in evaluation.estimates.items()
    ]
    return ResultTable(["", "mean", "95% interval", "problems"], rows, list(_notes(evaluation)))


def changes_of(name: str, old: Evaluation, new: Evaluation) -> ResultTable:
    """Return the paired differences new - old on a benchmark. Raises UserError if there are none."""
    found = compared(name, old, new)
    rows = [
        [
            *(name, shown(name, one.a), shown(name, one.b), change(name, one.value)),
            interval(name, one.low, one.high, sign="+"),
            *(str(count) for count in (one.better, one.worse, one.equal)),
        ]
        for name, one in found.items()
    ]
    first = next(iter(found.values()))
    both = first.better + first.worse + first.equal
    notes = [f"{both} problems in both, {first.only_a} only in a, {first.only_b} only in b"]
    heads = ["", "a", "b", "b - a", "95% interval", "better", "worse", "equal"]
    return ResultTable(heads, rows, notes)


def sampling_text(evaluation: Evaluation) -> str:
    """Return how the replies of an evaluation were sampled."""
    plan = evaluation.plan
    return f"n = {plan.n}, temperature {plan.temperature:g}, at most {plan.max_tokens} tokens"


def print_evaluation(
    name: str, evaluation: Evaluation, console: Console | None = None, *, usage: EvaluationUsage | None = None
) -> None:
    """Print the estimates with intervals, by each label of the problems, and their basis: verdicts,
    truncation, turns, thinking, and replies that count as failed without a verdict."""
    console = console or Console()
    console.print(f"[bold]{escape(name)}[/]: {sampling_text(evaluation)}", highlight=False, soft_wrap=True)
    found = results_of(evaluation)
    console.print(_rich_table(found.heads, found.rows))
    headline = evaluation.headline[0]
    for label, rows in evaluation.tables.items():
        heads = [label, headline, "95% interval", "problems"]
        console.print(_rich_table(heads, [[row.name, *_cells(headline, row.estimate)] for row in rows]))
    for line in [*found.notes, *([usage.line] if usage else [])]:
        _say(console, line)
    for line in _warnings(evaluation):
        console.print(f"[bold red]warning:[/] {escape(line)}", highlight=False, soft_wrap=True)


def print_comparison(a: str, b: str, console: Console | None = None, *, list_problems: bool = False) -> None:
    """Print the paired difference b - a for every benchmark and estimate of both folders, and their other
    differences.

    ``list_problems`` names the problems whose main result is better in b than in a, and worse.
    Raises UserError when a folder contains no evaluation, or the two share no benchmark or no problem.
    """
    console = console or Console()
    pairs = evaluation_pairs(a, b)
    for name, old_folder, new_folder in pairs:
        old, new = load_evaluation(old_folder), load_evaluation(new_folder)
        console.print(f"[bold]{escape(name)}[/]", highlight=False)
        found = changes_of(name, old, new)
        console.print(_rich_table(found.heads, found.rows))
        for line in [*found.notes, *(_changed_problems(old, new) if list_problems else ())]:
            _say(console, line)
        if changed := differences(old.manifest, new.manifest):
            console.print("[bold red]warning:[/] not measured in the same way:", highlight=False)
            for line in changed:
                _say(console, f"  {line}")
    first, second = evaluations_in(a), evaluations_in(b)
    for folder, rest in ((a, first.keys() - second.keys()), (b, second.keys() - first.keys())):
        if rest and len(pairs) < max(len(first), len(second)):
            _say(console, f"only in {folder}: {', '.join(sorted(rest))}")


def _changed_problems(old: Evaluation, new: Evaluation) -> Iterator[str]:
    """Yield the problems whose main result differs, with the results in a and in b."""
    estimate = next(iter(paired_differences(old, new)))
    before, after = old.values(estimate), new.values(estimate)
    problems = {problem.id: problem for problem in old.problems}
    for word, sign in (("gained", 1), ("lost", -1)):
        for b in new.problems:
            if b.id in before and b.id in after and sign * (after[b.id] - before[b.id]) > 0:
                results = (_result_of(estimate, problem) for problem in (problems[b.id], b))
                yield f"{word}  {b.id}  {', then '.join(results)}"


def _result_of(estimate: str, problem: ProblemResult) -> str:
    if estimate == REWARD:
        return f"{problem.reward:.3f}"
    return f"{problem.correct} of {problem.n}"


def _say(console: Console, line: str) -> None:
    console.print(escape(line), highlight=False, soft_wrap=True)


def _rich_table(heads: Sequence[str], rows: Rows) -> Table:
    table = Table(*heads)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


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


def with_interval(name: str, value: float, low: float, high: float, *, sign: str = "") -> str:
    """Return an estimate and its bounds as text, or with ``sign`` "+" a difference and its bounds."""
    text = change(name, value) if sign else shown(name, value)
    return f"{text} [{interval(name, low, high, sign=sign).replace(' to ', ', ')}]"


def _cells(name: str, estimate: Estimate) -> tuple[str, str, str]:
    bounds = interval(name, estimate.low, estimate.high)
    return shown(name, estimate.value), bounds, str(estimate.problems)


def _notes(evaluation: Evaluation) -> Iterator[str]:
    shares = evaluation.shares
    verdicts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in shares.verdicts.items())
    replies = f"{shares.samples} replies of {shares.mean_tokens:.0f} tokens on average"
    if shares.mean_turns > 1:
        replies += f", in {shares.mean_turns:.1f} turns"
    yield f"{replies}: {verdicts}" if verdicts else replies
    cut = f"cut at the token limit {percent(shares.truncated)}"
    yield f"{cut}, without code {percent(shares.no_code)}" if verdicts else cut
    if evaluation.episode:
        means = (f"{name} {value:.3f}" for name, value in evaluation.episode.items())
        yield f"means of the environment's metrics: {', '.join(means)}"
    if shares.thinking:
        tokens = shares.mean_thinking_tokens
        length = f"{tokens:.0f} tokens, " if tokens is not None else ""
        yield (
            f"{percent(shares.thinking)} think, for {length}{shares.mean_thinking_characters:.0f} characters "
            f"on average; {percent(shares.unfinished_thinking)} of all end inside their thinking"
        )


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

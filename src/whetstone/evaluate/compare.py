"""Compares two evaluations, problem by problem, and reads the pass rates of one."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whetstone.core.errors import UserError
from whetstone.data.pass_rate import PassRate
from whetstone.evaluate.manifest import differences
from whetstone.evaluate.passk import PairedDifference
from whetstone.evaluate.results import (
    EVALUATION_FILE,
    REWARD,
    Evaluation,
    ProblemResult,
    load_evaluation,
    paired_differences,
)
from whetstone.evaluate.tables import change, interval, shown


def print_comparison(a: str, b: str, console: Console | None = None, *, list_problems: bool = False) -> None:
    """Print the paired difference b - a for every benchmark and estimate of both folders, and their other
    differences.

    ``list_problems`` names the problems whose main result is better in b than in a, and worse.
    Raises UserError when a folder contains no evaluation, or the two share no benchmark or no problem.
    """
    console = console or Console()
    first, second = evaluations_in(a), evaluations_in(b)
    # Two single evaluations are compared under any names.
    if len(first) == len(second) == 1:
        pairs = [(next(iter(second)), next(iter(first.values())), next(iter(second.values())))]
    else:
        pairs = [(name, first[name], second[name]) for name in first if name in second]
    if not pairs:
        raise UserError(f"{a} has {_names(first)}, and {b} has {_names(second)}: no benchmark is in both")
    for name, old, new in pairs:
        _print_pair(console, name, load_evaluation(old), load_evaluation(new), list_problems)
    for folder, rest in ((a, first.keys() - second.keys()), (b, second.keys() - first.keys())):
        if rest and len(pairs) < max(len(first), len(second)):
            _say(console, f"only in {folder}: {', '.join(sorted(rest))}")


def evaluations_in(folder: str | Path) -> dict[str, Path]:
    """Return the evaluations of an --out folder by benchmark. The folder of a single one is also accepted.

    Raises UserError if there are none.
    """
    root = Path(folder)
    if (root / EVALUATION_FILE).is_file():
        return {root.name: root}
    found = {place.parent.name: place.parent for place in sorted(root.glob(f"*/{EVALUATION_FILE}"))}
    if not found:
        raise UserError(
            f"{root}: has no {EVALUATION_FILE}; give the --out folder of a finished `whetstone eval`"
        )
    return found


def _print_pair(console: Console, name: str, old: Evaluation, new: Evaluation, list_problems: bool) -> None:
    console.print(f"[bold]{escape(name)}[/]", highlight=False)
    table = Table("", "a", "b", "b - a", "95% interval", "better", "worse", "equal")
    rows = compared(name, old, new)
    for estimate, found in rows.items():
        table.add_row(
            *(estimate, shown(estimate, found.a), shown(estimate, found.b), change(estimate, found.value)),
            interval(estimate, found.low, found.high, sign="+"),
            *(str(count) for count in (found.better, found.worse, found.equal)),
        )
    console.print(table)
    headline, one = next(iter(rows.items()))
    both = one.better + one.worse + one.equal
    _say(console, f"{both} problems in both, {one.only_a} only in a, {one.only_b} only in b")
    if list_problems:
        _list_changes(console, old, new, headline)
    if changed := differences(old.manifest, new.manifest):
        console.print("[bold red]warning:[/] not measured in the same way:", highlight=False)
        for line in changed:
            _say(console, f"  {line}")


def compared(name: str, old: Evaluation, new: Evaluation) -> dict[str, PairedDifference]:
    """Return ``paired_differences``. Raises UserError if there are none; ``name`` is that of the
    benchmark."""
    found = paired_differences(old, new)
    if not found:
        what = "problem" if old.headline[0] in new.estimates else "result"
        raise UserError(
            f"{name}: the two evaluations have no {what} in common; compare evaluations of the same benchmark"
        )
    return found


def _list_changes(console: Console, old: Evaluation, new: Evaluation, estimate: str) -> None:
    """Print the problems whose value of an estimate differs, with the results in a and in b."""
    before, after = old.values(estimate), new.values(estimate)
    problems = {problem.id: problem for problem in old.problems}
    for word, sign in (("gained", 1), ("lost", -1)):
        for b in new.problems:
            if b.id in before and b.id in after and sign * (after[b.id] - before[b.id]) > 0:
                results = (_result_of(estimate, problem) for problem in (problems[b.id], b))
                _say(console, f"{word}  {b.id}  {', then '.join(results)}")


def _result_of(estimate: str, problem: ProblemResult) -> str:
    if estimate == REWARD:
        return f"{problem.reward:.3f}"
    return f"{problem.correct} of {problem.n}"


def _names(evaluations: dict[str, Path]) -> str:
    return ", ".join(sorted(evaluations))


def _say(console: Console, line: str) -> None:
    console.print(escape(line), highlight=False, soft_wrap=True)


class _PassRates(Struct, frozen=True):
    """Pass rates by problem id, and the number of requested replies for each."""

    by_id: dict[str, PassRate]
    n: int


def read_pass_rates(folder: str | Path) -> _PassRates:
    """Return the pass rates in an --out folder of ``whetstone eval``, of all its benchmarks.

    Failed replies and those without a verdict are not among the ``n`` of a rate: they are no evidence about
    the problem. ``n`` is 0 if verdicts could have been forged. Raises UserError for a folder without a
    finished evaluation, for an evaluation that has rewards only, and for evaluations that asked for different
    numbers of replies.
    """
    rates: dict[str, PassRate] = {}
    asked: set[int] = set()
    for place in evaluations_in(folder).values():
        evaluation = load_evaluation(place)
        if evaluation.reward is not None and not evaluation.pass_at:
            raise UserError(
                f"{place}: has rewards only, and nothing says which replies solved their problem; the "
                "environment must set `accepted` in its samples"
            )
        asked.add(evaluation.plan.n)
        rates |= _rates(evaluation)
    if len(asked) > 1:
        counts = ", ".join(map(str, sorted(asked)))
        raise UserError(f"{folder}: its evaluations have {counts} replies a problem; give one of its folders")
    return _PassRates(rates, asked.pop())


def _rates(evaluation: Evaluation) -> dict[str, PassRate]:
    model = str(evaluation.manifest.get("model", {}).get("source") or "unknown")
    return {
        problem.id: PassRate(model, 0, 0)
        if problem.shared_interpreter
        else PassRate(model, _decided(problem), problem.correct)
        for problem in evaluation.problems
    }


def _decided(problem: ProblemResult) -> int:
    return problem.n - problem.judge_errors - problem.failed - problem.undecided

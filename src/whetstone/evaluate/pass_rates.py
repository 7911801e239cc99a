"""How often a model solved each problem, out of the folder of an evaluation."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from whetstone.data.pass_rate import PassRate
from whetstone.errors import UserError
from whetstone.evaluate.compare import evaluations_in
from whetstone.evaluate.results import Evaluation, load_evaluation


class PassRates(Struct, frozen=True):
    """Pass rates by problem id, and how many replies were asked for each."""

    by_id: dict[str, PassRate]
    n: int


def read_pass_rates(folder: str | Path) -> PassRates:
    """The pass rates in an --out folder of ``whetstone eval``, of all its benchmarks.

    Replies that nobody could judge, or that could not be had, are not among the ``n`` of a rate: they say
    nothing of the problem. ``n`` is 0 where verdicts could have been forged. Raises UserError for a folder
    without a finished evaluation, and for one whose evaluations asked for different numbers of replies.
    """
    rates: dict[str, PassRate] = {}
    asked: set[int] = set()
    for place in evaluations_in(folder).values():
        evaluation = load_evaluation(place)
        asked.add(evaluation.plan.n)
        rates |= _rates(evaluation)
    if len(asked) > 1:
        counts = ", ".join(map(str, sorted(asked)))
        raise UserError(f"{folder}: its evaluations have {counts} replies a problem; give one of its folders")
    return PassRates(rates, asked.pop())


def _rates(evaluation: Evaluation) -> dict[str, PassRate]:
    model = str(evaluation.manifest.get("model", {}).get("source") or "unknown")
    return {
        problem.id: PassRate(model, 0, 0)
        if problem.shared_interpreter
        else PassRate(model, problem.n - problem.judge_errors - problem.failed, problem.correct)
        for problem in evaluation.problems
    }

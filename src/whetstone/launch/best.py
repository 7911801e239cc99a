"""Which checkpoint of a run is its best, by an evaluation that the recipe names (``trainer.keep_best``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from whetstone.errors import UserError, did_you_mean
from whetstone.launch.recipe import Recipe
from whetstone.report.metrics import Record


def check_best(recipe: Recipe) -> None:
    """Raise UserError where ``trainer.keep_best`` names what the run does not measure."""
    wanted, evaluation = recipe.trainer.keep_best, recipe.evaluation
    plans = {"train": evaluation.k} if evaluation.train_problems else {}
    plans |= {"heldout": evaluation.k} if recipe.data.heldout is not None else {}
    for planned in evaluation.planned(recipe.sampling, recipe.workflow, recipe.seed):
        plans[planned.entry.title] = planned.plan.k
    known = [f"{name}/pass@{k}" for name, ks in plans.items() for k in sorted({1, *ks})]
    if wanted is not None and wanted not in known:
        there = f"there are {', '.join(known)}" if known else "it is evaluated on nothing"
        raise UserError(
            f"`trainer.keep_best`: this run does not measure `{wanted}`{did_you_mean(wanted, known)}; {there}"
        )


def best_step(records: Mapping[int, Record], name: str) -> int | None:
    """The step with the highest value of an evaluation, the first of equals; None where it has none."""
    values = {step: record[f"eval/{name}"] for step, record in records.items() if f"eval/{name}" in record}
    return max(sorted(values), key=lambda step: values[step], default=None)


def worth_keeping(
    recipe: Recipe, records: Callable[[], Mapping[int, Record]]
) -> Callable[[list[int]], Collection[int]]:
    """Of the steps that have a checkpoint: the best one, and those that may yet turn out to be."""
    name, settings = recipe.trainer.keep_best, recipe.evaluation

    def worth(steps: list[int]) -> Collection[int]:
        if name is None:
            return ()
        known = records()
        kept = {step for step in steps if settings.due(step, last=False) and step not in known}
        best = best_step({step: known[step] for step in steps if step in known}, name)
        return kept if best is None else {*kept, best}

    return worth

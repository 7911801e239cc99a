"""The problems that a run trains and is evaluated on."""

from __future__ import annotations

from whetstone.data.builtin import subset
from whetstone.data.dataset import load_problems
from whetstone.errors import UserError
from whetstone.launch.recipe import Recipe
from whetstone.problem import Problem


def problem_sets(recipe: Recipe) -> dict[str, list[Problem]]:
    """The training and held-out problems of a recipe. Raises UserError when they overlap, or none is left."""
    data = recipe.data
    sets = {"train": load_problems(data.train), "heldout": load_problems(data.heldout)}
    if data.difficulty:
        wanted = [p for p in sets["train"] if p.meta.get("difficulty") in data.difficulty]
        if not wanted:
            there = sorted({str(p.meta.get("difficulty")) for p in sets["train"]})
            raise UserError(
                f"`data.difficulty`: no problem of {data.train} is {' or '.join(data.difficulty)}; "
                f"there are {', '.join(there)}"
            )
        sets["train"] = wanted
    sets["train"] = subset(sets["train"], data.max_problems, recipe.seed)
    shared = {p.id for p in sets["train"]} & {p.id for p in sets["heldout"]}
    if shared:
        raise UserError(
            f"`data.train` and `data.heldout` share {len(shared)} problems, {sorted(shared)[0]!r} among "
            "them; held-out problems must not be trained on"
        )
    return sets


def evaluation_sets(recipe: Recipe, sets: dict[str, list[Problem]]) -> dict[str, list[Problem]]:
    """Of ``problem_sets``, what every evaluation during the run is on: the same problems at every step."""
    few = subset(sets["train"], recipe.evaluation.train_problems, recipe.seed)
    return {**sets, "train": few}

"""What can be wrong with a recipe and shows without a network, a model or a problem."""

from __future__ import annotations

from whetstone.data.journey import load_journey
from whetstone.errors import UserError
from whetstone.launch.best import check_best
from whetstone.launch.recipe import Recipe, partner_recipe, stage_recipes


def check_structure(recipe: Recipe) -> None:
    """Raise UserError, naming the key, for a stage, a journey, a benchmark or a plan that cannot be."""
    for stage in stage_recipes(recipe):
        _check(stage)
    if recipe.verifier is not None:
        partner_recipe(recipe)


def _check(recipe: Recipe) -> None:
    check_best(recipe)
    _check_ranks(recipe)
    if recipe.data.build is not None:
        try:
            load_journey(recipe.data.build)
        except UserError as error:
            raise UserError(f"`data.build`: {error}") from None
    for planned in recipe.evaluation.planned(recipe.sampling, recipe.workflow, recipe.seed):
        if planned.entry.harness == "official" and recipe.judge.url:
            raise UserError(
                f"`evaluation.sets` ({planned.entry.title}): the rules of official graders are kept by the "
                "judge of this machine only; leave out `harness`, or `judge.url`"
            )


def _check_ranks(recipe: Recipe) -> None:
    """Ranks that sample nothing would have to come together for an evaluation of their own."""
    evaluation = recipe.evaluation
    measures = recipe.data.heldout is not None or evaluation.train_problems or evaluation.sets
    if recipe.flow is not None and recipe.flow.ranks > 1 and measures and evaluation.process != "separate":
        raise ranks_cannot_evaluate(recipe.flow.ranks)


def ranks_cannot_evaluate(ranks: int) -> UserError:
    """The refusal of an evaluation inside a trainer of several ranks."""
    return UserError(
        f"`evaluation.process`: the trainer of a flow has {ranks} ranks, each with a part of the model, "
        "and none evaluates; set it to `separate`, or measure nothing (data.heldout=null, "
        "evaluation.train_problems=0, no `evaluation.sets`)"
    )

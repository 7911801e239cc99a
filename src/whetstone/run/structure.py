"""Checks of a recipe that need no network, model or problem. Torch-free."""

from __future__ import annotations

from whetstone.core.errors import UserError
from whetstone.data.pipeline import load_pipeline
from whetstone.run.evaluations import check_best
from whetstone.run.recipe import Recipe, partner_recipe, stage_recipes


def check_structure(recipe: Recipe) -> None:
    """Raise UserError, naming the key, for an invalid stage, pipeline, benchmark or plan."""
    for stage in stage_recipes(recipe):
        _check(stage)
    if recipe.verifier is not None:
        partner_recipe(recipe)


def _check(recipe: Recipe) -> None:
    check_best(recipe)
    _check_ranks(recipe)
    if recipe.data.build is not None:
        try:
            load_pipeline(recipe.data.build)
        except UserError as error:
            raise UserError(f"`data.build`: {error}") from None
    for planned in recipe.evaluation.planned(recipe.sampling, recipe.environment, recipe.seed):
        if planned.entry.harness == "official" and recipe.judge.url:
            raise UserError(
                f"`evaluation.sets` ({planned.entry.title}): official graders only run in the judge of "
                "this machine; remove `harness`, or `judge.url`"
            )


def _check_ranks(recipe: Recipe) -> None:
    """Refuse an evaluation inside a trainer with several ranks, because no rank has the whole model."""
    evaluation = recipe.evaluation
    measures = recipe.data.heldout is not None or evaluation.train_problems or evaluation.sets
    if recipe.flow is not None and recipe.flow.ranks > 1 and measures and evaluation.process != "separate":
        raise ranks_cannot_evaluate(recipe.flow.ranks)


def ranks_cannot_evaluate(ranks: int) -> UserError:
    """Return the error for an evaluation inside a trainer of several ranks."""
    return UserError(
        f"`evaluation.process`: the trainer of a flow has {ranks} ranks, each with a part of the model, "
        "and cannot evaluate; set it to `separate`, or evaluate nothing (data.heldout=null, "
        "evaluation.train_problems=0, no `evaluation.sets`)"
    )


def check_lengths(recipe: Recipe, context: int | None) -> None:
    """Raise UserError for reply lengths that leave no room for a prompt.

    context: the most tokens of prompt and reply together; None for no limit.
    """
    allowed = recipe.engine.options.get("max_context")
    bounds = {
        f"the context of {recipe.model.path or 'the model'}": (context, "take a model with a longer context"),
        "`engine.options.max_context`": (allowed if isinstance(allowed, int) else None, "raise that"),
    }
    for key, tokens in _lengths(recipe):
        for bound, (most, remedy) in bounds.items():
            if most is not None and tokens >= most:
                raise UserError(
                    f"`{key}` is {tokens}, but {bound} is {most}: no token is left for a prompt; lower it, "
                    f"or {remedy}"
                )


def _lengths(recipe: Recipe) -> list[tuple[str, int]]:
    sampling, evaluation = recipe.sampling, recipe.evaluation
    lengths = [("sampling.max_tokens", sampling.max_tokens)]
    if evaluation.max_tokens is not None:
        lengths.append(("evaluation.max_tokens", evaluation.max_tokens))
    planned = evaluation.planned(sampling, recipe.environment, recipe.seed)
    return lengths + [(f"evaluation.sets: {each.entry.title}", each.plan.max_tokens) for each in planned]

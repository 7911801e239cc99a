"""Whether the replies that a recipe asks for fit into the context. Torch-free."""

from __future__ import annotations

from whetstone.errors import UserError
from whetstone.launch.recipe import Recipe


def check_lengths(recipe: Recipe, context: int | None) -> None:
    """Raise UserError for replies that leave no room for a prompt.

    context: the tokens that prompt and reply may have together by the model; None where it sets no bound.
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
                    f"`{key}` is {tokens}, and {bound} is {most}: no token is left for a prompt; lower it, "
                    f"or {remedy}"
                )


def _lengths(recipe: Recipe) -> list[tuple[str, int]]:
    sampling, evaluation = recipe.sampling, recipe.evaluation
    lengths = [("sampling.max_tokens", sampling.max_tokens)]
    if evaluation.max_tokens is not None:
        lengths.append(("evaluation.max_tokens", evaluation.max_tokens))
    planned = evaluation.planned(sampling, recipe.workflow, recipe.seed)
    return lengths + [(f"evaluation.sets: {each.entry.title}", each.plan.max_tokens) for each in planned]

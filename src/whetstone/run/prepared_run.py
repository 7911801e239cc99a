"""Everything about a run that is known, and may be refused, before a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from whetstone.core.errors import UserError
from whetstone.engine.preview import Preview, preview
from whetstone.run.evaluation import EvaluationSet, evaluation_sets
from whetstone.run.problem_sets import ProblemSets, problem_sets
from whetstone.run.recipe import Recipe, model_recipes
from whetstone.run.structure import check_lengths


@dataclass(frozen=True)
class PreparedRun:
    """A recipe with its number of steps, its problems, and its evaluation sets.

    measured: empty if this process does not evaluate. tokenizer: of ``model.path``; None for a model from
    scratch.
    """

    recipe: Recipe
    sets: ProblemSets
    measured: Sequence[EvaluationSet]
    tokenizer: Any


def preflight(recipe: Recipe, log: Callable[[str], None], *, with_evaluation: bool = True) -> PreparedRun:
    """Read everything that a run needs except the model's weights. Benchmarks are only read
    ``with_evaluation``.

    Raises UserError, with the remedy, for a missing model, set or benchmark, and for replies that exceed the
    model's context.
    """
    preview_of_model = preflight_model(recipe)
    tokenizer = None if preview_of_model is None else preview_of_model.tokenizer
    sets = problem_sets(recipe, tokenizer, log)
    recipe = with_steps(recipe, len(sets.train))
    measured: list[EvaluationSet] = []
    if with_evaluation:
        measured = evaluation_sets(recipe, sets)
    return PreparedRun(recipe, sets, measured, tokenizer)


def preflight_models(
    recipe: Recipe, log: Callable[[str], None], *, with_evaluation: bool = True
) -> dict[str, PreparedRun]:
    """Run the preflight for each model of a run; return the results by model name.

    Problems and evaluation sets belong to the first model only. Raises UserError as ``preflight`` does.
    """
    first = preflight(recipe, log, with_evaluation=with_evaluation)
    prepared: dict[str, PreparedRun] = {}
    for name, each in model_recipes(first.recipe).items():
        if not prepared:
            prepared[name] = first
        else:
            model_preview = preflight_model(each)
            prepared[name] = PreparedRun(
                each, ProblemSets([], []), [], None if model_preview is None else model_preview.tokenizer
            )
    return prepared


def preflight_model(recipe: Recipe) -> Preview | None:
    """Return the tokenizer and the context of ``model.path``; None for a model from scratch.

    Raises UserError for a missing model, and for lengths beyond its context.
    """
    model = recipe.model
    model_preview = None if model.path is None else preview(model.path, revision=model.revision)
    check_lengths(
        recipe,
        model.scratch.max_positions if model.scratch else model_preview.context if model_preview else None,
    )
    return model_preview


def with_steps(recipe: Recipe, problems: int) -> Recipe:
    """Return the recipe with its number of steps, if it is given as passes over the training problems."""
    trainer = recipe.trainer
    if not trainer.passes:
        return recipe
    steps = trainer.passes * problems // trainer.prompts_per_step
    if steps == 0:
        raise UserError(
            f"`trainer.passes`: {trainer.passes} over {problems} problems is less than one step of "
            f"`trainer.prompts_per_step` = {trainer.prompts_per_step}"
        )
    return recipe.model_copy(update={"trainer": trainer.model_copy(update={"steps": steps, "passes": 0})})

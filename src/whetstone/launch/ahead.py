"""Everything about a run that is known, and may refuse it, before a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from whetstone.engine.preview import Preview, preview
from whetstone.errors import UserError
from whetstone.launch.evaluation import Measured, own_sets
from whetstone.launch.lengths import check_lengths
from whetstone.launch.problem_sets import ProblemSets, problem_sets
from whetstone.launch.recipe import Recipe, recipes_of


@dataclass(frozen=True)
class Ahead:
    """The recipe with its length in steps, its problems, and what it is evaluated on.

    measured: nothing for who does not evaluate. tokenizer: of ``model.path``; None for a model from scratch.
    """

    recipe: Recipe
    sets: ProblemSets
    measured: Sequence[Measured]
    tokenizer: Any


def look_ahead(recipe: Recipe, say: Callable[[str], None], *, evaluates: bool = True) -> Ahead:
    """Read what a run is made of, short of the model's weights; the benchmarks only for who ``evaluates``.

    Raises UserError for a model, a set or a benchmark that is not there, each with what gets it, and for
    replies that are longer than the model's context.
    """
    seen = look_at_model(recipe)
    tokenizer = None if seen is None else seen.tokenizer
    sets = problem_sets(recipe, tokenizer, say)
    recipe = with_steps(recipe, len(sets.train))
    measured: list[Measured] = []
    if evaluates:
        measured = own_sets(recipe, sets)
    return Ahead(recipe, sets, measured, tokenizer)


def look_at_all(recipe: Recipe, say: Callable[[str], None], *, evaluates: bool = True) -> dict[str, Ahead]:
    """The same for each model of a run, by its name in the workflow.

    Problems and evaluations are the first one's alone. Raises UserError as ``look_ahead`` does.
    """
    first = look_ahead(recipe, say, evaluates=evaluates)
    found: dict[str, Ahead] = {}
    for name, each in recipes_of(first.recipe).items():
        if not found:
            found[name] = first
        else:
            seen = look_at_model(each)
            found[name] = Ahead(each, ProblemSets([], []), [], None if seen is None else seen.tokenizer)
    return found


def look_at_model(recipe: Recipe) -> Preview | None:
    """The tokenizer and the context of ``model.path``; None for a model from scratch.

    Raises UserError for a model that is not there, and for lengths beyond its context.
    """
    model = recipe.model
    seen = None if model.path is None else preview(model.path, revision=model.revision)
    check_lengths(recipe, model.scratch.max_positions if model.scratch else seen.context if seen else None)
    return seen


def with_steps(recipe: Recipe, problems: int) -> Recipe:
    """The recipe with its length in steps, where it says passes over so many training problems."""
    trainer = recipe.trainer
    if not trainer.passes:
        return recipe
    steps = trainer.passes * problems // trainer.prompts_per_step
    if steps == 0:
        raise UserError(
            f"`trainer.passes`: {trainer.passes} over {problems} problems are less than one step of "
            f"`trainer.prompts_per_step` = {trainer.prompts_per_step}"
        )
    return recipe.model_copy(update={"trainer": trainer.model_copy(update={"steps": steps, "passes": 0})})

"""Runs in stages, such as 16k tokens and then 32k. Each stage is a run that starts from the previous stage's
weights.

Stage k has the folder ``OUT/K-NAME`` with recipe, metrics, checkpoints and report. It starts from the model
of the previous stage's last checkpoint, with a new optimizer and, for a KL penalty, with these weights as its
reference. A killed run resumes in its current stage, exactly as a run without stages does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from whetstone.core.errors import UserError
from whetstone.run.auto import with_choices
from whetstone.run.evaluations import evaluation_records
from whetstone.run.prepared_run import preflight, preflight_model
from whetstone.run.recipe import Recipe, stage_recipes
from whetstone.run.run_dir import check_recipe
from whetstone.trainer.checkpoint import checkpoint_error


def check_models(recipe: Recipe) -> None:
    """Raise UserError for a missing model, and for a stage whose lengths exceed its context."""
    for number, stage in enumerate(stage_recipes(recipe)):
        try:
            preflight_model(stage)
        except UserError as error:
            where = f"stage `{recipe.stages[number].name}`: " if recipe.stages else ""
            raise UserError(f"{where}{error}") from None


def remaining_runs(recipe: Recipe, log: Callable[[str], None]) -> Iterator[Recipe]:
    """Yield the remaining runs of a recipe: its stages in order, or the whole recipe.

    The caller must finish a run before it asks for the next. Raises UserError for invalid input of any stage
    before the first one starts.
    """
    recipe = with_choices(recipe, log)
    if not recipe.stages:
        yield recipe
        return
    if (recipe.run_dir() / "recipe.yaml").exists():
        raise UserError(f"{recipe.run_dir()} holds a run without stages; give another folder with out=FOLDER")
    # A mistake in a later stage must be found before the first one trains.
    prepared = [preflight(stage, log) for stage in stage_recipes(recipe)]
    model = recipe.model
    for number, prepared_stage in enumerate(prepared, 1):
        stage = prepared_stage.recipe.model_copy(update={"model": model})
        title = f"stage {number} of {len(prepared)}, {recipe.stages[number - 1].name}"
        if is_finished(stage):
            check_recipe(stage.run_dir(), stage)
            log(f"{title}: is done")
        else:
            log(f"{title}: in {stage.run_dir()}")
            yield stage
        changes = {"path": str(last_checkpoint(stage)), "revision": None, "scratch": None}
        model = model.model_copy(update=changes)


def is_finished(recipe: Recipe) -> bool:
    """Return whether the run of a recipe has made and evaluated its last step."""
    done = recipe.trainer.steps in evaluation_records(recipe.run_dir())
    return done and checkpoint_error(last_checkpoint(recipe)) is None


def last_checkpoint(recipe: Recipe) -> Path:
    """Return the checkpoint of a run's last step, which is also a model folder."""
    return recipe.run_dir() / "checkpoints" / f"step-{recipe.trainer.steps}"

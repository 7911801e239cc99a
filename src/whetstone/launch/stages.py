"""A run in stages, such as 16k tokens and then 32k: each is a run of its own, from the last one's weights.

Stage k has the folder ``OUT/K-NAME`` with recipe, metrics, checkpoints and page. It starts from the model in
the last checkpoint of the stage before, with a fresh optimizer and, for a KL penalty, with these weights as
its reference. What the last evaluation of one and the first of the next have in common is made once
(``borders.py``). A killed run goes on in the stage where it was, exactly as a run without stages does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from whetstone.engine.settings import ModelSection
from whetstone.errors import UserError
from whetstone.launch.ahead import look_ahead, look_at_model
from whetstone.launch.borders import StageBefore
from whetstone.launch.dtype import with_dtype
from whetstone.launch.evaluations import recorded
from whetstone.launch.recipe import Recipe, stage_recipes
from whetstone.launch.run_dir import check_recipe
from whetstone.trainer.checkpoint import checkpoint_fault


def check_models(recipe: Recipe) -> None:
    """Raise UserError for a model that is not there, and where a stage is longer than its context."""
    for number, stage in enumerate(stage_recipes(recipe)):
        try:
            look_at_model(stage)
        except UserError as error:
            where = f"stage `{recipe.stages[number].name}`: " if recipe.stages else ""
            raise UserError(f"{where}{error}") from None


def runs_of(recipe: Recipe, say: Callable[[str], None]) -> Iterator[tuple[Recipe, StageBefore | None]]:
    """What is left to train of a recipe: its stages in order, each with the one before; or the whole of it.

    The caller has finished a run when it asks for the next. Raises UserError for bad input of any stage
    before the first one begins.
    """
    recipe = with_dtype(recipe, say)
    if not recipe.stages:
        yield recipe, None
        return
    if (recipe.run_dir() / "recipe.yaml").exists():
        raise UserError(f"{recipe.run_dir()} holds a run without stages; name another folder with out=FOLDER")
    check_models(recipe)
    seen = [look_ahead(stage, say) for stage in stage_recipes(recipe)]
    model, before = recipe.model, None
    for number, ahead in enumerate(seen, 1):
        stage = ahead.recipe.model_copy(update={"model": model})
        title = f"stage {number} of {len(seen)}, {recipe.stages[number - 1].name}"
        if is_finished(stage):
            check_recipe(stage.run_dir(), stage)
            say(f"{title}: is done")
        else:
            say(f"{title}: in {stage.run_dir()}")
            yield stage, before
        model = _next_model(model, last_checkpoint(stage))
        before = StageBefore(stage.run_dir(), stage.trainer.steps, ahead.measured, stage.judge)


def is_finished(recipe: Recipe) -> bool:
    """Whether the run of a recipe has made its last step and evaluated it."""
    done = recipe.trainer.steps in recorded(recipe.run_dir())
    return done and checkpoint_fault(last_checkpoint(recipe)) is None


def last_checkpoint(recipe: Recipe) -> Path:
    """Where a run ends: the checkpoint of its last step, which is also a model's folder."""
    return recipe.run_dir() / "checkpoints" / f"step-{recipe.trainer.steps}"


def _next_model(model: ModelSection, checkpoint: Path) -> ModelSection:
    return model.model_copy(update={"path": str(checkpoint), "revision": None, "scratch": None})

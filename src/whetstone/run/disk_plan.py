"""Compares the free disk space with the checkpoints that a run writes, before a model is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from whetstone.core.errors import UserError
from whetstone.engine.meta_model import meta_model
from whetstone.run.memory_plan import model_configuration, planned_dtype
from whetstone.run.recipe import Recipe, model_recipes, stage_recipes
from whetstone.trainer.checkpoint import saved_steps
from whetstone.trainer.lora import add_adapters

# The fp32 master weights and the two moments of a trained parameter.
_TRAINED_BYTES = 3 * 4


def check_disk(recipe: Recipe) -> None:
    """Raise UserError if the disk has too little room for the checkpoints of a run, all its models
    included."""
    if error := _error(list(model_recipes(recipe).values())):
        raise UserError(error)


def disk_errors(recipe: Recipe, log: Callable[[str], None]) -> list[str]:
    """Log the disk space of all stages and models of a recipe, and return the error of a disk without it.

    A recipe for another machine (``machine``) is not refused for the disk of this one.
    """
    parts = [each for stage in stage_recipes(recipe) for each in model_recipes(stage).values()]
    try:
        needed = sum(_needed_bytes(each) for each in parts)
    except _NOT_PLANNED as error:
        log(f"not checked: the disk: {error}")
        return []
    folder, free = _disk(recipe)
    log(f"disk: {needed / 1e9:.3g} GB for checkpoints, and {free / 1e9:.3g} GB are free in {folder}")
    error = _error(parts) if recipe.machine is None else ""
    return [error] if error else []


# A configuration that only the hub has, an untested family, and a model that transformers cannot make without
# weights. Where these stop a run, other checks say so.
_NOT_PLANNED = (UserError, RuntimeError)


def _error(parts: Sequence[Recipe]) -> str:
    try:
        needed = sum(_needed_bytes(each) for each in parts)
        fewer = sum(_needed_bytes(each, keep=_least(each)) for each in parts)
    except _NOT_PLANNED:
        return ""
    folder, free = _disk(parts[0])
    if needed <= free:
        return ""
    lower = f"set trainer.keep_checkpoints={_least(parts[0])}, " if fewer <= free else ""
    return (
        f"`out`: {folder} has {free / 1e9:.3g} GB free, and the checkpoints of the run need "
        f"{needed / 1e9:.3g} GB: free some space, {lower}or give a folder on another disk with out=FOLDER"
    )


def _least(recipe: Recipe) -> int:
    """Return the least ``trainer.keep_checkpoints`` of a run."""
    return min(recipe.trainer.keep_checkpoints, 2 if len(recipe.environment.models) > 1 else 1)


def _disk(recipe: Recipe) -> tuple[Path, int]:
    """Return the nearest existing folder above the run's, and the free bytes of its disk."""
    folder = recipe.run_dir().absolute()
    nearest = next(path for path in (folder, *folder.parents) if path.is_dir())
    return nearest, shutil.disk_usage(nearest).free


def _needed_bytes(recipe: Recipe, keep: int | None = None) -> int:
    """Return the bytes that the run will write in addition to the checkpoints in its folder.

    The checkpoint that is being written exists beside those that are kept.
    """
    trainer, saved = recipe.trainer, saved_steps(recipe.run_dir())
    last = max(saved, default=-1)
    most = (trainer.keep_checkpoints if keep is None else keep) + (trainer.keep_best is not None) + 1
    # The length of a run in passes is only known once its problems are read.
    left = most if trainer.passes else sum(1 for _ in _steps_to_save(recipe, last))
    if not left:
        return 0
    whole, trained = _model_sizes(recipe)
    algorithm = recipe.algorithm
    starts = algorithm.needs_reference or algorithm.samples_with_start or trainer.lora is not None
    start = whole if starts and last < 0 else 0
    return start + (whole + _TRAINED_BYTES * trained) * max(1, min(left, most - len(saved)))


def _steps_to_save(recipe: Recipe, last: int) -> Iterator[int]:
    trainer = recipe.trainer
    for step in {0, trainer.steps, *range(0, trainer.steps, trainer.checkpoint_every)}:
        if step > last:
            yield step


def _model_sizes(recipe: Recipe) -> tuple[int, int]:
    """Return the bytes of a model's weights, and the number of its trained parameters."""
    model = meta_model(model_configuration(recipe), planned_dtype(recipe))
    whole = sum(parameter.numel() * parameter.itemsize for parameter in model.parameters())
    if recipe.trainer.lora is not None:
        add_adapters(model, recipe.trainer.lora, 0)
    return whole, sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)

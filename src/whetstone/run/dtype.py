"""Resolves ``model.dtype: auto`` of a recipe, once for a whole run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from whetstone.core.errors import UserError
from whetstone.run.recipe import Recipe, load_recipe, stage_recipes

if TYPE_CHECKING:
    from whetstone.engine.settings import ModelSection


def with_dtype(recipe: Recipe, log: Callable[[str], None]) -> Recipe:
    """Return the recipe with a dtype in place of ``auto``; the choice is logged.

    A run that has started keeps the dtype in its ``recipe.yaml``, also on another machine. Another dtype
    rounds differently, so the resumed run would not equal an uninterrupted one.
    """
    if recipe.model.dtype != "auto":
        return recipe
    from whetstone.engine.device import computes_bf16, pick_device, resolve_dtype

    device, recorded = pick_device(recipe.model.device), _recorded_dtype(recipe)
    dtype = recorded or resolve_dtype("auto", device)
    reason = "as at the start of this run" if recorded else "chosen by `model.dtype: auto`"
    log(f"computing in {dtype} on {device.type}, {reason}")
    # The dtype was recorded on another machine.
    if dtype == "bfloat16" and not computes_bf16(device):
        log(
            f"warning: this {device.type} has no bfloat16 instructions and emulates them slowly; resume on a "
            "machine that has them, or start a new run with out=FOLDER"
        )
    return _with_dtype_value(recipe, dtype)


def with_recorded_dtype(recipe: Recipe) -> Recipe:
    """Return the recipe with the recorded dtype of its run in place of ``auto``, if the run has started."""
    recorded = _recorded_dtype(recipe) if recipe.model.dtype == "auto" else None
    return recipe if recorded is None else _with_dtype_value(recipe, recorded)


def check_dtype_given(recipe: Recipe) -> None:
    """Raise UserError for ``auto`` if several machines would each choose a dtype."""
    if recipe.model.dtype == "auto":
        raise UserError(
            "`model.dtype: auto` is resolved on each machine, and the roles of this run may be on different "
            "machines: add `model.dtype=bfloat16` or `model.dtype=float32` to the command of every role"
        )


def _recorded_dtype(recipe: Recipe) -> str | None:
    files = (stage.run_dir() / "recipe.yaml" for stage in stage_recipes(recipe))
    dtypes = (load_recipe(file).model.dtype for file in files if file.exists())
    return next((dtype for dtype in dtypes if dtype != "auto"), None)


def _with_dtype_value(recipe: Recipe, dtype: str) -> Recipe:
    """Set the dtype of both models of a run, unless the recipe names another for the second."""
    changes: dict[str, object] = {"model": _model_with(recipe.model, dtype)}
    if recipe.verifier is not None and recipe.verifier.model.get("dtype") == "auto":
        model = {**recipe.verifier.model, "dtype": dtype}
        changes["verifier"] = recipe.verifier.model_copy(update={"model": model})
    return recipe.model_copy(update=changes)


def _model_with(model: ModelSection, dtype: str) -> ModelSection:
    return model.model_copy(update={"dtype": dtype})

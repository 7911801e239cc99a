"""What ``model.dtype: auto`` of a recipe stands for, decided once and kept for the whole run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from whetstone.errors import UserError
from whetstone.launch.recipe import Recipe, load_recipe, stage_recipes

if TYPE_CHECKING:
    from whetstone.engine.settings import ModelSection


def with_dtype(recipe: Recipe, say: Callable[[str], None]) -> Recipe:
    """The recipe with a dtype in place of ``auto``, which is announced through ``say``.

    A run that has begun keeps the dtype that its ``recipe.yaml`` records, also on another machine: another
    one would round differently, and the resumed run would not be the interrupted one.
    """
    if recipe.model.dtype != "auto":
        return recipe
    from whetstone.engine.device import pick_device
    from whetstone.engine.dtype import computes_bf16, resolve_dtype

    device, recorded = pick_device(recipe.model.device), _recorded_dtype(recipe)
    dtype = recorded or resolve_dtype("auto", device)
    reason = "as this run began" if recorded else "chosen by `model.dtype: auto`"
    say(f"computing in {dtype} on {device.type}, {reason}")
    if dtype == "bfloat16" and not computes_bf16(device):
        say(
            f"warning: this {device.type} has no bfloat16 instructions and emulates them slowly; resume on a "
            "machine that has them, or start a new run with out=FOLDER"
        )
    return _with(recipe, dtype)


def as_recorded(recipe: Recipe) -> Recipe:
    """The recipe with the dtype that its run has recorded in place of ``auto``, if it has begun."""
    recorded = _recorded_dtype(recipe) if recipe.model.dtype == "auto" else None
    return recipe if recorded is None else _with(recipe, recorded)


def check_decided(recipe: Recipe) -> None:
    """Raise UserError for ``auto`` where several machines would each decide for themselves."""
    if recipe.model.dtype == "auto":
        raise UserError(
            "`model.dtype: auto` is decided by one machine, and the roles of this run may be on several that "
            "differ: add `model.dtype=bfloat16` or `model.dtype=float32` to the command of every role"
        )


def _recorded_dtype(recipe: Recipe) -> str | None:
    files = (stage.run_dir() / "recipe.yaml" for stage in stage_recipes(recipe))
    dtypes = (load_recipe(file).model.dtype for file in files if file.exists())
    return next((dtype for dtype in dtypes if dtype != "auto"), None)


def _with(recipe: Recipe, dtype: str) -> Recipe:
    """Both models of a run of two compute in one dtype, unless the recipe names another for the second."""
    changes: dict[str, object] = {"model": _model_with(recipe.model, dtype)}
    if recipe.verifier is not None and recipe.verifier.model.get("dtype") == "auto":
        model = {**recipe.verifier.model, "dtype": dtype}
        changes["verifier"] = recipe.verifier.model_copy(update={"model": model})
    return recipe.model_copy(update=changes)


def _model_with(model: ModelSection, dtype: str) -> ModelSection:
    return model.model_copy(update={"dtype": dtype})

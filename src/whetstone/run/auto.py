"""Resolves what a recipe leaves to the machine (``model.dtype: auto``, ``engine.kind: auto``), once for a
whole run.

A run that has started keeps the choices in its ``recipe.yaml``, also on another machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from whetstone.core.errors import UserError
from whetstone.core.settings import read_settings
from whetstone.engine.settings import AUTO, EngineSection
from whetstone.run.dtype import check_dtype_given, with_dtype, with_recorded_dtype
from whetstone.run.recipe import Recipe, load_recipe, stage_recipes


def with_choices(recipe: Recipe, log: Callable[[str], None]) -> Recipe:
    """Return the recipe with a dtype and an engine in place of ``auto``; the choices are logged."""
    return _with_engine(with_dtype(recipe, log), log)


def with_recorded_choices(recipe: Recipe) -> Recipe:
    """Return the recipe with the recorded choices of its run in place of ``auto``, if the run has started."""
    recipe = with_recorded_dtype(recipe)
    recorded = _recorded_engine(recipe) if uses_auto_engine(recipe) else None
    return recipe if recorded is None else _with_kind(recipe, recorded)


def chosen_overrides(recipe: Recipe, decided: Recipe) -> str:
    """Return the overrides, each after a space, that make the choices of ``decided`` explicit."""
    overrides = ""
    if decided.model.dtype != recipe.model.dtype:
        overrides += f" model.dtype={decided.model.dtype}"
    if decided.engine.kind != recipe.engine.kind:
        section = decided.engine.model_dump(exclude_defaults=True, exclude={"kind"})
        overrides += f" 'engine={json.dumps({'kind': decided.engine.kind, **section})}'"
    return overrides


def check_choices_given(recipe: Recipe) -> None:
    """Raise UserError for ``auto`` if several machines would each choose."""
    check_dtype_given(recipe)
    if uses_auto_engine(recipe):
        raise UserError(
            "`engine.kind: auto` is resolved on each machine, and the roles of this run may be on different "
            "machines: add `engine.kind=vllm` or `engine.kind=torch` to the command of every role"
        )


def uses_auto_engine(recipe: Recipe) -> bool:
    """Return whether a model of the run has ``engine.kind: auto``."""
    return AUTO in {recipe.engine.kind, recipe.verifier and recipe.verifier.engine.get("kind")}


def needs_embedded(recipe: Recipe) -> str:
    """Return why a run cannot use a server; empty if it can."""
    if recipe.deterministic:
        return "`deterministic: true` needs an engine that repeats its replies"
    return ""


def _with_engine(recipe: Recipe, log: Callable[[str], None]) -> Recipe:
    if not uses_auto_engine(recipe):
        return recipe
    from whetstone.engine.choice import choose_engine

    recorded = _recorded_engine(recipe)
    if recorded is not None:
        log(f"sampling with engine `{recorded}`, as at the start of this run")
        return _with_kind(recipe, recorded)
    section = recipe.engine if recipe.engine.kind == AUTO else _partner_engine(recipe)
    choice = choose_engine(section, recipe.model.device, needs_embedded(recipe))
    log(f"sampling with engine `{choice.kind}`, chosen by `engine.kind: auto`: {choice.reason}")
    return _with_kind(recipe, choice.kind)


def _recorded_engine(recipe: Recipe) -> str | None:
    """Return the engine of a run that has started: that of the first model, or of the second one if only that
    has ``auto``."""
    for stage in stage_recipes(recipe):
        file = stage.run_dir() / "recipe.yaml"
        if file.exists():
            recorded = load_recipe(file)
            section = recorded.engine if recipe.engine.kind == AUTO else _partner_engine(recorded)
            return None if section.kind == AUTO else section.kind
    return None


def _with_kind(recipe: Recipe, kind: str) -> Recipe:
    """Set the engine of the models of a run that have ``auto``."""
    from whetstone.engine.choice import with_kind

    changes: dict[str, object] = {}
    if recipe.verifier is not None and recipe.verifier.engine:
        # What it names itself is joined to the first model's section, which has other options from now on.
        partner = _partner_engine(recipe)
        if partner.kind == AUTO:
            own = with_kind(partner, kind).model_dump()
            changes["verifier"] = recipe.verifier.model_copy(update={"engine": own})
    if recipe.engine.kind == AUTO:
        changes["engine"] = with_kind(recipe.engine, kind)
    return recipe.model_copy(update=changes)


def _partner_engine(recipe: Recipe) -> EngineSection:
    """Return the engine section of the second model."""
    assert recipe.verifier is not None
    own = {**recipe.engine.model_dump(exclude_unset=True), **recipe.verifier.engine}
    return read_settings(EngineSection, own, name=lambda key: f"`verifier.engine.{key}`")

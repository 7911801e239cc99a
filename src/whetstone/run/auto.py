"""Resolves what a recipe leaves to the machine (``model.dtype: auto``, ``engine.kind: auto``), once for a
whole run.

A choice is made at the start of a run and recorded in its ``recipe.yaml``. A resumed run repeats it, also on
another machine: another dtype rounds differently, so the run would not equal an uninterrupted one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from whetstone.core.errors import UserError
from whetstone.engine.served.settings import ServedOptions
from whetstone.engine.settings import AUTO, EngineSection, TorchOptions
from whetstone.run.recipe import Recipe, load_recipe, stage_recipes

_REPEATED = "as at the start of this run"
# The keys that may be ``auto``, and how a command names their values.
_KEYS = {
    "model.dtype": "`model.dtype=bfloat16` or `model.dtype=float32`",
    "engine.kind": "`engine.kind=vllm` or `engine.kind=torch`",
}


def with_choices(recipe: Recipe, log: Callable[[str], None]) -> Recipe:
    """Return the recipe with a dtype and an engine in place of ``auto``; the choices are logged."""
    # Imported here, because this module is also used where torch is not.
    from whetstone.engine.device import computes_bf16, pick_device, resolve_dtype

    wanted, repeated = _auto_keys(recipe), with_recorded_choices(recipe)
    chosen, device = repeated, recipe.model.device
    if "model.dtype" in wanted:
        found, reason = pick_device(device), _REPEATED
        if "model.dtype" in _auto_keys(repeated):
            chosen, reason = _with_dtype(chosen, resolve_dtype(AUTO, found)), "chosen by `model.dtype: auto`"
        log(f"computing in {chosen.model.dtype} on {found.type}, {reason}")
        # The dtype was recorded on another machine.
        if chosen.model.dtype == "bfloat16" and not computes_bf16(found):
            log(
                f"warning: this {found.type} has no bfloat16 instructions and emulates them slowly; resume "
                "on a machine that has them, or start a new run with out=FOLDER"
            )
    if "engine.kind" in wanted:
        kind, reason = repeated.engine.kind, _REPEATED
        if kind == AUTO:
            kind, reason = choose_engine(recipe.engine, device, needs_embedded(recipe))
            chosen, reason = _with_engine(chosen, kind), f"chosen by `engine.kind: auto`: {reason}"
        log(f"sampling with engine `{kind}`, {reason}")
    return chosen


def with_recorded_choices(recipe: Recipe) -> Recipe:
    """Return the recipe with the recorded choices of its run in place of ``auto``, if the run has started."""
    if not _auto_keys(recipe):
        return recipe
    files = (stage.run_dir() / "recipe.yaml" for stage in stage_recipes(recipe))
    file = next((file for file in files if file.exists()), None)
    if file is None:
        return recipe
    recorded = load_recipe(file)
    return _with_engine(_with_dtype(recipe, recorded.model.dtype), recorded.engine.kind)


def check_choices_given(recipe: Recipe) -> None:
    """Raise UserError for ``auto`` if several machines would each choose."""
    for key in _auto_keys(recipe):
        raise UserError(
            f"`{key}: auto` is resolved on each machine, and the roles of this run may be on different "
            f"machines: add {_KEYS[key]} to the command of every role"
        )


def chosen_overrides(recipe: Recipe, decided: Recipe) -> str:
    """Return the overrides, each after a space, that make the choices of ``decided`` explicit."""
    overrides = ""
    if decided.model.dtype != recipe.model.dtype:
        overrides += f" model.dtype={decided.model.dtype}"
    if decided.engine.kind != recipe.engine.kind:
        section = decided.engine.model_dump(exclude_defaults=True, exclude={"kind"})
        overrides += f" 'engine={json.dumps({'kind': decided.engine.kind, **section})}'"
    return overrides


def needs_embedded(recipe: Recipe) -> str:
    """Return why a run cannot use a server; empty if it can."""
    if recipe.deterministic:
        return "`deterministic: true` needs an engine that repeats its replies"
    return ""


def choose_engine(section: EngineSection, device: str, needs_embedded: str = "") -> tuple[str, str]:
    """Return vLLM if ``device`` is a CUDA device and the package exists, and the embedded engine otherwise;
    and the reason for the log.

    device: ``model.device``. needs_embedded: why a run cannot use a server; empty if it can. The package must
    be in the environment of ``engine.options.python``, by default in this one, and built for an accelerator.
    Raises UserError for an unknown device.
    """
    from whetstone.engine.device import pick_device

    if needs_embedded:
        return "torch", needs_embedded
    if pick_device(device).type != "cuda":
        return "torch", "there is no CUDA device"
    options = ServedOptions.model_validate(_options_for("vllm", section.options))
    try:
        interpreter = options.interpreter("vllm")
    except UserError as error:
        return "torch", str(error)
    if options.computes_on_cpu(interpreter):
        return "torch", f"the vLLM of {interpreter} is built for the CPU"
    return "vllm", "there are a CUDA device and vLLM"


def _auto_keys(recipe: Recipe) -> list[str]:
    """Return the keys of ``_KEYS`` that are ``auto`` in a recipe."""
    values = {"model.dtype": recipe.model.dtype, "engine.kind": recipe.engine.kind}
    return [key for key in _KEYS if values[key] == AUTO]


def _with_dtype(recipe: Recipe, dtype: str) -> Recipe:
    """Set the dtype of both models of a run in place of ``auto``, unless the recipe names another for the
    second."""
    if recipe.model.dtype != AUTO:
        return recipe
    changes: dict[str, object] = {"model": recipe.model.model_copy(update={"dtype": dtype})}
    if recipe.verifier is not None and recipe.verifier.model.get("dtype") == AUTO:
        model = {**recipe.verifier.model, "dtype": dtype}
        changes["verifier"] = recipe.verifier.model_copy(update={"model": model})
    return recipe.model_copy(update=changes)


def _with_engine(recipe: Recipe, kind: str) -> Recipe:
    """Set the engine in place of ``auto``, with its own options, also for a second model that names none."""
    if recipe.engine.kind != AUTO or kind == AUTO:
        return recipe
    placement = "apart" if kind == "torch" else recipe.engine.placement
    options = _options_for(kind, recipe.engine.options)
    changes: dict[str, object] = {"engine": EngineSection(kind=kind, placement=placement, options=options)}
    own = {} if recipe.verifier is None else recipe.verifier.engine
    if recipe.verifier is not None and "options" in own and "kind" not in own:
        engine = {**own, "options": _options_for(kind, own["options"])}
        changes["verifier"] = recipe.verifier.model_copy(update={"engine": engine})
    return recipe.model_copy(update=changes)


def _options_for(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    known = TorchOptions.model_fields if kind == "torch" else ServedOptions.model_fields
    return {key: value for key, value in options.items() if key in known}

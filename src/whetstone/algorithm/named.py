"""Algorithms by name: a file of ``presets/``, an entry point of a package, or a class by its dotted path."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, SerializeAsAny, ValidationInfo

from whetstone.algorithm import presets
from whetstone.algorithm.algorithm import PRESETS, Algorithm
from whetstone.core.plugins import load_plugin

DEFAULT = "grpo"
ENTRY_POINTS = "whetstone.algorithms"

# The keys of the section in a recipe.yaml of version 0.1: all of them, null for "as the preset has it".
_EARLIER = {"preset", "advantage", "clip_low", "clip_high", "dual_clip", "aggregation", "kl_coef"} | {
    "drop_zero_variance",
    "refill_rounds",
    "overlong_buffer",
    "mask_truncated",
}


def preset_names() -> list[str]:
    """The algorithms that ship."""
    return sorted(module.name for module in pkgutil.iter_modules(presets.__path__))


def algorithm_class(name: str) -> type[Algorithm]:
    """The class of a preset, or the one at ``module.Class``. Raises ValueError naming what there is."""
    if name not in preset_names():
        return _own(name)
    module = import_module(f"{PRESETS}.{name}")
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Algorithm) and value.__module__ == module.__name__
    )


def algorithm_named(name: str, settings: Mapping[str, Any] | None = None) -> Algorithm:
    """The algorithm of that name with ``settings`` on top. Raises ValueError for what cannot be."""
    return algorithm_class(name).model_validate({**(settings or {}), "preset": name})


def _own(name: str) -> type[Algorithm]:
    if name in ("tis", "icepop"):
        raise ValueError(f"`{name}` is a correction of any algorithm: take `correction: {name}`")
    found = load_plugin(name, kind="algorithm preset", entry_point_group=ENTRY_POINTS, builtin=preset_names())
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ValueError(f"preset `{name}`: not a subclass of whetstone.algorithm.algorithm.Algorithm")
    return found


def _chosen(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, dict):
        return value
    settings = cast("dict[str, Any]", value)
    if settings.keys() == _EARLIER:
        settings = {key: setting for key, setting in settings.items() if setting is not None}
    name = str(settings.get("preset", DEFAULT))
    return algorithm_class(name).model_validate({**settings, "preset": name}, context=info.context)


AnyAlgorithm = Annotated[SerializeAsAny[Algorithm], BeforeValidator(_chosen)]
"""An algorithm as a recipe has it: ``preset``, and whatever differs from it."""

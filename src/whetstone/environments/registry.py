"""Finds environments by name: the built-in ones, or those of users."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from whetstone.core.plugins import load_plugin
from whetstone.environments.environment import Environment

SINGLE_TURN = "single_turn"

_BUILT_IN = {
    SINGLE_TURN: "whetstone.environments.single_turn.SingleTurn",
    "repair": "whetstone.environments.repair.Repair",
    "agent": "whetstone.environments.agent.CommandAgent",
    "codegen_verifier": "whetstone.environments.codegen_verifier.CodegenVerifier",
    "tools": "whetstone.environments.tools.ToolUse",
}


def environment_class(kind: str) -> type[Environment]:
    """Return the class with this name. Raises ValueError, which lists the known names."""
    found = load_plugin(
        _BUILT_IN.get(kind, kind),
        kind="environment",
        entry_point_group="whetstone.environments",
        builtin=tuple(_BUILT_IN),
    )
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise ValueError(
            f"environment `{kind}` is not a subclass of whetstone.environments.environment.Environment; see "
            "docs/environments.md"
        )
    return found


def create_environment(
    kind: str, settings: object, options: Mapping[str, Any], context: Any = None
) -> Environment:
    """Return the environment with this name, ``settings`` and ``options``.

    ``context`` is that of pydantic's validation. Raises ValueError for unknown names and invalid options.
    """
    found = cast("Any", environment_class(kind))
    if found.Options is not None:
        return found(settings, found.Options.model_validate(dict(options), context=context))
    try:
        inspect.signature(found).bind(settings, **options)
    except TypeError as error:
        allowed = [*inspect.signature(found).parameters][1:]
        rule = f"its options are {', '.join(allowed)}" if allowed else f"`{kind}` has no options; remove them"
        raise ValueError(f"options: {error}; {rule}") from None
    return found(settings, **options)

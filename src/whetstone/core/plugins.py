"""Loads classes and functions of users, by dotted path or by the name of an entry point."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any

from whetstone.core.errors import did_you_mean


def load_plugin(name: str, *, kind: str, entry_point_group: str, builtin: Sequence[str]) -> Any:
    """Return the object at ``module.Name``, or the one that an entry point of the group calls ``name``.

    kind: the kind of object, for messages. builtin: the names that need no plugin, for messages. Raises
    ValueError that lists the known names.
    """
    module, _, attribute = name.rpartition(".")
    installed = entry_points(group=entry_point_group)
    try:
        if module:
            return getattr(import_module(module), attribute)
        if name in installed.names:
            return installed[name].load()
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{kind} `{name}`: {error}; write it as `module.Name`, and add the module's folder to PYTHONPATH"
        ) from None
    known = [*builtin, *sorted(installed.names)]
    raise ValueError(
        f"unknown {kind} `{name}`{did_you_mean(name, known)} "
        f"(known: {', '.join(known)}; or your own `module.Name`)"
    )


def installed_plugins(group: str) -> dict[str, Any]:
    """Return what the installed packages offer under a group of entry points, by name."""
    return {entry.name: entry.load() for entry in sorted(entry_points(group=group), key=attrgetter("name"))}

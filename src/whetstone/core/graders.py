"""The optional package with the graders of published benchmarks. Whetstone finds it through entry points.

``importlib.metadata`` takes 20 ms to import, and judge workers import this module. So it is imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whetstone.core.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

INSTALL_COMMAND = "pip install ./packages/graders"


def installed_comparisons() -> tuple[str, ...]:
    """Return the names of the installed comparison modules, for ``Judge(comparisons=…)``."""
    return tuple(sorted(entry.value for entry in _entry_points("whetstone.comparisons")))


def load_grader(name: str) -> Any:
    """Return the grader ``name``. Raises UserError if no installed package provides it."""
    return _load("whetstone.graders", name, f"harness `{name}`")


def installed_eval_actions() -> set[str]:
    """Return the names of the actions of ``whetstone eval`` that installed packages provide."""
    return _entry_points("whetstone.eval_actions").names


def load_eval_action(name: str) -> Any:
    """Return the function that declares ``whetstone eval NAME``. Raises UserError without such a package."""
    return _load("whetstone.eval_actions", name, f"`whetstone eval {name}`")


def _load(group: str, name: str, subject: str) -> Any:
    installed = _entry_points(group)
    if name not in installed.names:
        raise UserError(f"{subject} needs the package whetstone-graders; install it: {INSTALL_COMMAND}")
    return installed[name].load()


def _entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points

    return entry_points(group=group)

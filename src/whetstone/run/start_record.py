"""Records how a run is started: the command, the machine, versions, and how the recipe differs."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.core.shipped_recipes import shipped_names
from whetstone.evaluate.manifest import flat_settings, version
from whetstone.report.starts import RunStart, keep_start
from whetstone.run.recipe import Recipe, load_recipe

COMMAND_VARIABLE = "WHETSTONE_COMMAND"
"""The command of a person, for the processes that it starts."""

_PACKAGES = ("torch", "transformers", "vllm", "sglang")
# They name the run and its place, and are shown elsewhere.
_NOT_SETTINGS = frozenset({"name", "out"})


def record_start(folder: Path, recipe: Recipe) -> None:
    """Append the present start to ``starts.jsonl`` in the folder of a run."""
    shipped = recipe.name if recipe.name in shipped_names() else ""
    found = {name: number for name in _PACKAGES if (number := version(name))}
    versions = {"whetstone": __version__, "python": sys.version.split()[0], **found}
    command = os.environ.get(COMMAND_VARIABLE) or shlex.join(sys.argv)
    settings = _settings(recipe, shipped)
    keep_start(
        folder, RunStart(time.time(), command, socket.gethostname(), _commit(), versions, shipped, settings)
    )


def _settings(recipe: Recipe, shipped: str) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from the shipped recipe, or that the recipe gives; see ``RunStart``."""
    before: dict[str, Any] = {}
    now = flat_settings(recipe.model_dump(mode="json", exclude_unset=not shipped))
    if shipped:
        try:
            before = flat_settings(load_recipe(shipped).model_dump(mode="json"))
        # It is for people only, and must not stop a run.
        except UserError:
            return {}
    keys = [key for key in {**now, **before} if key not in _NOT_SETTINGS and before.get(key) != now.get(key)]
    return {key: (before.get(key), now.get(key)) for key in keys}


def _commit() -> str:
    """Return the commit of the checkout that runs, with ``-dirty`` if files differ; empty without one."""
    root = Path(__file__).parents[3]
    # An installed package may be inside the checkout of something else.
    if not (root / "pyproject.toml").is_file():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

"""The folder of a run: who may write to it, which recipe it belongs to, and where to resume."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from whetstone.errors import UserError
from whetstone.recipe import Recipe, dump_recipe

_MAY_CHANGE = {
    "trainer.steps",
    "trainer.checkpoint_every",
    "trainer.keep_checkpoints",
    "evaluation.process",
    "evaluation.threads",
    "evaluation.wait_s",
    "judge.workers",
    "out",
}
"""Keys that a resumed run may set anew: they change how far and how fast it goes, not what it computes."""


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the folder for this process; a second run in it is refused. Freed even by ``kill -9``."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}; name a folder for the run with out=FOLDER") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise UserError(
            f"{folder}: another process trains in this folder; wait for it, or name another with out=FOLDER"
        ) from None
    try:
        yield
    finally:
        if [file.name for file in folder.iterdir()] == [".lock"]:  # nothing came of it
            (folder / ".lock").unlink()
            for path in made:
                path.rmdir()
        os.close(handle)


def is_locked(folder: Path) -> bool:
    """Whether a process of this machine trains in the folder. Asking does not touch the lock."""
    try:
        number = (folder / ".lock").stat().st_ino
        held = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    locks = (line.split() for line in held.splitlines())
    return any("FLOCK" in fields and any(f.endswith(f":{number}") for f in fields) for fields in locks)


def check_recipe(folder: Path, recipe: Recipe) -> None:
    """Raise UserError, naming the keys that differ, when the folder holds a run with another recipe."""
    file = folder / "recipe.yaml"
    if file.exists():
        before = _flat(yaml.safe_load(file.read_text(encoding="utf-8")))
        now = _flat(recipe.model_dump(mode="json"))
        changed = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))
        changed = [k for k in changed if k not in _MAY_CHANGE]
        if changed:
            keys = ", ".join(f"{k} ({before.get(k)!r} there, {now.get(k)!r} now)" for k in changed)
            raise UserError(
                f"{folder} holds a run with another recipe: {keys}. "
                "Give the same recipe to resume it, or name another folder with out=FOLDER"
            )


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the resolved recipe, every field included."""
    file = folder / "recipe.yaml"
    partial = file.with_suffix(".tmp")
    partial.write_text(dump_recipe(recipe), encoding="utf-8")
    partial.replace(file)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for name, child in value.items() for k, v in _flat(child, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): value}

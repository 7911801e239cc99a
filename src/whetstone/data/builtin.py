"""Problem sets by name: those that ship with the package, generated micro-tasks, or a file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from whetstone.data.files import read_problems
from whetstone.errors import UserError, did_you_mean
from whetstone.problem import Problem

_SPLITS = {
    "builtin:train": ("train",),
    "builtin:heldout": ("heldout",),
    "builtin:all": ("train", "heldout"),
}
SET_NAMES = (*_SPLITS, "micro:train", "micro:heldout")


def load_problems(name_or_path: str | Path, *, max_problems: int = 0, seed: int = 0) -> list[Problem]:
    """Return the problems of a set that ships (see ``SET_NAMES``) or of a problem file.

    ``max_problems`` > 0 takes at most that many: a subset drawn by ``seed``, in the set's order.
    Raises UserError for an unknown name, a file that cannot be read, and a set without problems.
    """
    name = str(name_or_path)
    if name in _SPLITS:
        problems = [problem for split in _SPLITS[name] for problem in _shipped(split)]
    elif name.startswith("micro:") and name in SET_NAMES:
        problems = _micro(name)
    elif ":" in name and not Path(name).exists():
        raise _no_set(name)
    else:
        problems = _from_file(name)
    if not problems:
        raise UserError(f"{name}: holds no problems")
    return subset(problems, max_problems, seed)


def shipped_files(split: str) -> list[Path]:
    """The problem files of a shipped split (``train`` or ``heldout``), one for each concept, by name."""
    folder = Path(str(resources.files("whetstone.data"))) / "problems" / split
    return sorted(folder.glob("*.jsonl"))


def subset(problems: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    """At most ``count`` problems drawn without replacement, in their order; 0 takes all."""
    if count <= 0 or count >= len(problems):
        return list(problems)
    chosen = random.Random(seed).sample(range(len(problems)), count)
    return [problems[i] for i in sorted(chosen)]


def _shipped(split: str) -> list[Problem]:
    return [problem for file in shipped_files(split) for problem in read_problems(file)]


def _micro(name: str) -> list[Problem]:
    from whetstone.data.micro import micro_problems

    return micro_problems("train" if name == "micro:train" else "heldout")


def _from_file(name: str) -> list[Problem]:
    if not Path(name).exists() and "." not in Path(name).name:
        raise _no_set(name)
    return list(read_problems(name))


def _no_set(name: str) -> UserError:
    known = ", ".join(SET_NAMES)
    return UserError(f"no problem set `{name}`{did_you_mean(name, SET_NAMES)} (known: {known}, or a file)")

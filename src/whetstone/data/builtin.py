"""Problem sets that ship with the package, or are generated: by name."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from whetstone.core.problem import Problem
from whetstone.data.files import read_problems

_SPLITS = {
    "builtin:train": ("train",),
    "builtin:heldout": ("heldout",),
    "builtin:all": ("train", "heldout"),
}
SET_NAMES = (*_SPLITS, "micro:train", "micro:heldout")


def shipped_problems(name: str) -> Iterator[Problem]:
    """Yield the problems of a shipped set: a name of ``SET_NAMES``."""
    if name in _SPLITS:
        for split in _SPLITS[name]:
            for file in shipped_files(split):
                yield from read_problems(file)
    else:
        from whetstone.data.micro import micro_problems

        yield from micro_problems("train" if name == "micro:train" else "heldout")


def shipped_files(split: str) -> list[Path]:
    """Return the problem files of a shipped split (``train`` or ``heldout``), by name. Each is
    one concept."""
    folder = Path(str(resources.files("whetstone.data"))) / "problems" / split
    return sorted(folder.glob("*.jsonl"))


def subset(problems: Sequence[Problem], count: int, seed: int) -> list[Problem]:
    """Return at most ``count`` problems, drawn without replacement and in their order; 0 takes all."""
    if count <= 0 or count >= len(problems):
        return list(problems)
    chosen = random.Random(seed).sample(range(len(problems)), count)
    return [problems[i] for i in sorted(chosen)]

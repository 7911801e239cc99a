"""What the folders that were given hold: runs, evaluations, data sets, each with an id to ask for it by.

Nothing else is ever read: a request names an id, and never a path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from whetstone.data.card import CARD_FILE
from whetstone.errors import UserError
from whetstone.evaluate.folder import SAMPLES_FILE
from whetstone.evaluate.results import EVALUATION_FILE

DEPTH = 3
"""So many folders deep a run is looked for."""
_NOT_SEARCHED = frozenset({"checkpoints", "rollouts", "logs", "flow", "views", "node_modules"})
_RUN_FILES = ("recipe.yaml", "metrics.jsonl", "rollouts", "evaluations")

Kind = Literal["run", "evaluation", "data"]


class Place(Struct, frozen=True):
    """A folder that can be looked at. ``run``: the id of the run whose evaluation it is, empty for none."""

    id: str
    kind: Kind
    name: str
    path: Path
    run: str = ""


def find_places(roots: Sequence[Path]) -> dict[str, Place]:
    """Everything in the folders, by id. What a link leads to outside of them is left out."""
    found: dict[str, Place] = {}
    for root in roots:
        inside = root.resolve()
        for place in _search(inside, root.name or str(inside), inside, DEPTH):
            found.setdefault(place.id, place)
    return found


def check_roots(roots: Sequence[Path]) -> None:
    """Raise UserError for a folder that is none, and where there is nothing to look at in any of them."""
    for root in roots:
        if not root.is_dir():
            raise UserError(
                f"{root}: no such folder; give one that `whetstone train` or `whetstone eval` writes to"
            )
    if not find_places(roots):
        names = ", ".join(map(str, roots))
        raise UserError(
            f"{names}: no run, evaluation or data set in it, {DEPTH} folders deep (recipe.yaml, "
            f"metrics.jsonl, {SAMPLES_FILE}, {CARD_FILE}); give a folder that `whetstone train` or "
            "`whetstone eval` writes to, or one above it"
        )


def _search(folder: Path, name: str, inside: Path, depth: int) -> Iterator[Place]:
    kind = _kind(folder)
    if kind is not None:
        if not _stays(
            folder, inside, _RUN_FILES if kind == "run" else (SAMPLES_FILE, EVALUATION_FILE, CARD_FILE)
        ):
            return
        run = _place(kind, name, folder)
        yield run
        if kind == "run":
            yield from _of_run(run, inside)
        return
    for child in _children(folder) if depth else ():
        if child.name not in _NOT_SEARCHED and _stays(child, inside):
            yield from _search(child, f"{name}/{child.name}", inside, depth - 1)


def _of_run(run: Place, inside: Path) -> Iterator[Place]:
    """The evaluations of a run, in the order of their steps."""
    for child in sorted(_children(run.path / "evaluations"), key=_step):
        if _kind(child) == "evaluation" and _stays(child, inside, (SAMPLES_FILE, EVALUATION_FILE)):
            yield _place("evaluation", f"{run.name}/{child.name}", child, run.id)


def _step(folder: Path) -> tuple[str, int]:
    """By set, and within one by step: the name is step-N-SET."""
    _, _, rest = folder.name.partition("-")
    number, _, name = rest.partition("-")
    return name, int(number) if number.isdigit() else 0


def _place(kind: Kind, name: str, folder: Path, run: str = "") -> Place:
    return Place(hashlib.sha256(bytes(folder)).hexdigest()[:12], kind, name, folder, run)


def _kind(folder: Path) -> Kind | None:
    if (folder / "recipe.yaml").is_file() or (folder / "metrics.jsonl").is_file():
        return "run"
    if (folder / SAMPLES_FILE).is_file() or (folder / EVALUATION_FILE).is_file():
        return "evaluation"
    return "data" if (folder / CARD_FILE).is_file() else None


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(
            child for child in folder.iterdir() if child.is_dir() and not child.name.startswith(".")
        )
    except OSError:
        return []


def _stays(folder: Path, inside: Path, files: Sequence[str] = ()) -> bool:
    """Whether a folder, and these files of it, are inside the one that was given, wherever links lead."""
    return all(path.resolve().is_relative_to(inside) for path in (folder, *(folder / name for name in files)))

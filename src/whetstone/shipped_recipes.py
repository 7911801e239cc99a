"""The recipes that ship, found by name: those of runs, and in ``data/`` of data sets.

In a checkout they lie beside ``src``, in an installed package within it. What a recipe names below
``recipes/``, such as its ``data.build``, is found there from any working directory.
"""

from __future__ import annotations

from pathlib import Path, PurePath

FOLDER = "recipes"


def shipped_folder() -> Path:
    """Where they lie."""
    package = Path(__file__).parent
    installed = package / FOLDER
    return installed if installed.is_dir() else package.parents[1] / FOLDER


def shipped_names(kind: str = "") -> list[str]:
    """Their names: of runs, or of the ``kind`` that a folder of theirs says."""
    return sorted(file.stem for file in (shipped_folder() / kind).glob("*.yaml"))


def recipe_file(path: str | Path, kind: str = "") -> Path:
    """The file that is meant: the one at ``path``, or where there is none the one that ships by that name, or
    at that place below ``recipes/``; ``path`` itself if nothing of the sort ships."""
    file = Path(path)
    if file.is_file():
        return file
    place = PurePath(path)
    if place.parts[:1] == (FOLDER,):
        shipped = shipped_folder().joinpath(*place.parts[1:])
    elif len(place.parts) == 1:
        shipped = shipped_folder() / kind / f"{place.name.removesuffix('.yaml')}.yaml"
    else:
        return file
    return shipped if shipped.is_file() else file


def about(file: Path) -> str:
    """What a recipe says of itself first: the first sentence of its comment."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in lines[: _comments(lines)])
    return comment.partition(". ")[0].rstrip(".:")


def _comments(lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))

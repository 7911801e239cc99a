"""Finds the shipped recipes by name: those of runs, and those of data sets in ``data/``.

In a checkout they are next to ``src``, in an installed package they are inside it. A path below ``recipes/``
in a recipe, such as its ``data.build``, is found from any working directory.
"""

from __future__ import annotations

from pathlib import Path, PurePath

FOLDER = "recipes"
# The first line of a shipped recipe, which editors read: the schema file is in the same folder.
SCHEMA_LINE = "# yaml-language-server: $schema=schema.json\n"


def shipped_folder() -> Path:
    """Return the folder of the shipped recipes."""
    package = Path(__file__).parents[1]
    installed = package / FOLDER
    return installed if installed.is_dir() else package.parents[1] / FOLDER


def shipped_names(kind: str = "") -> list[str]:
    """Return the names of the recipes for runs, or of those in the folder ``kind``."""
    return sorted(file.stem for file in (shipped_folder() / kind).glob("*.yaml"))


def recipe_file(path: str | Path, kind: str = "") -> Path:
    """Return the file at ``path``, or else the shipped recipe with this name or this path in ``recipes/``.

    Returns ``path`` itself if there is neither.
    """
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


def recipe_text(name: str, kind: str = "") -> str:
    """Return a shipped recipe as the start of a file in any folder: the path of its schema is absolute."""
    file = recipe_file(name, kind)
    text = file.read_text(encoding="utf-8")
    return text.replace(SCHEMA_LINE, SCHEMA_LINE.replace("schema.json", str(file.parent / "schema.json")), 1)


def about(file: Path) -> str:
    """Return the first sentence of the comment at the beginning of a recipe."""
    comment: list[str] = []
    for line in file.read_text(encoding="utf-8").removeprefix(SCHEMA_LINE).splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment).partition(". ")[0].rstrip(".:")

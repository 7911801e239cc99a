"""Says what a folder holds, for errors about a folder of another kind."""

from __future__ import annotations

from pathlib import Path

from whetstone.core.errors import did_you_mean

# Files that only one kind of folder has, from the most to the least specific.
_KINDS = {
    "evaluation.json": "an evaluation",
    "metrics.jsonl": "a run",
    "samples.jsonl": "an evaluation that has not ended",
    "card.json": "a data set",
    "config.json": "a model",
}
_MOST_NAMED = 4


def kind_of(folder: Path) -> str:
    """Return ``a run``, for example; empty for a folder of no known kind."""
    return next((kind for name, kind in _KINDS.items() if (folder / name).is_file()), "")


def other_folder(folder: str | Path, missing: str) -> str:
    """Return what is at a path that lacks the file ``missing``, as the start of an error message.

    It names the kind of the folder, or those of the folders inside it, or else its first entries.
    """
    root = Path(folder)
    if not root.exists():
        near = sorted(root.parent.iterdir()) if root.parent.is_dir() else []
        return f"{root}: no such folder{did_you_mean(root.name, [each.name for each in near])}"
    if not root.is_dir():
        return f"{root}: a file, not a folder"
    if kind := kind_of(root):
        return f"{root}: is {kind}, without {missing}"
    inside = sorted(root.iterdir())
    kinds = [f"{each.name} is {kind}" for each in inside if each.is_dir() and (kind := kind_of(each))]
    found = kinds or [each.name for each in inside]
    if not found:
        return f"{root}: the folder is empty"
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"{root}: no {missing} in it, but {', '.join(found[:_MOST_NAMED])}{more}"

"""Locate the files of a source by split: local files, or those of the hub at one commit."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean
from whetstone.data.sources.downloads import Hub, HubFiles
from whetstone.data.sources.rows import Row, local_files, read_rows
from whetstone.data.sources.source import DatasetSource

OnBytes = Callable[[int], None] | None


class SplitFiles(Struct, frozen=True):
    """The files of a split (``""``: unknown), their size in bytes, and a function that reads them."""

    split: str
    files: tuple[str, ...]
    size: int
    read: Callable[[OnBytes], Iterator[tuple[str, Row]]]
    """Yields (place, row). Its argument, if any, is called with the number of bytes read so far."""


class LocatedFiles(Struct, frozen=True):
    """The parts of a source, and the commit on the hub (None: local files), or the folder of local files."""

    commit: str | None
    parts: tuple[SplitFiles, ...]
    folder: Path | None = None


def choose_splits(source: DatasetSource, requested: Sequence[str] = ()) -> list[str]:
    """Return the splits of a source to read: the requested ones, else ``train`` if it exists, else all.

    Raises UserError if the source has none of the requested splits.
    """
    if not requested:
        return ["train"] if "train" in source.files else list(source.files)
    chosen = [split for split in source.files if split in requested]
    if not chosen:
        known = ", ".join(source.files)
        hint = did_you_mean(requested[0], source.files)
        raise UserError(f"{source.name} has no split {' nor '.join(requested)}{hint} (it has: {known})")
    return chosen


def locate(
    source: DatasetSource, path: Path | None, *, revision: str | None = None, splits: Sequence[str] = ()
) -> LocatedFiles:
    """Find the rows of ``splits`` at ``path``, or if it is None at the source's own path or on the hub.

    ``revision`` is by default the one that the source names. Raises UserError for missing files.
    """
    path = Path(source.path) if path is None and source.path is not None else path
    if path is not None:
        if revision is not None:
            raise UserError(f"{source.name}: a revision selects files on the hub, but {path} is local")
        parts = tuple(_local_parts(source, path, choose_splits(source, splits)))
        return LocatedFiles(None, parts, path.parent if path.is_file() else path)
    if source.hub_id is None:
        raise UserError(f"{source.name} is not on the hub: give its files, {source.name}=PATH")
    return _on_hub(source, source.hub_id, revision or source.revision, choose_splits(source, splits))


def _local_parts(source: DatasetSource, path: Path, splits: list[str]) -> Iterator[SplitFiles]:
    files = local_files(path, list(source.files.values()))
    # A single file, or files with other names, have no known split.
    if path.is_file():
        yield _files_part("", files)
        return
    named = [(file, file.relative_to(path).as_posix()) for file in files]
    by_split = {
        split: [file for file, name in named if fnmatch.fnmatchcase(name, glob)]
        for split, glob in source.files.items()
    }
    if not any(by_split.values()):
        yield _files_part("", files)
        return
    found = [split for split in splits if by_split[split]]
    if not found:
        available = ", ".join(split for split, matching in by_split.items() if matching)
        raise UserError(
            f"{path}: contains no file of {' or '.join(splits)}, only of {available} (choose with --split)"
        )
    for split in found:
        yield _files_part(split, by_split[split])


def _files_part(split: str, files: list[Path]) -> SplitFiles:
    size = sum(file.stat().st_size for file in files)
    return SplitFiles(
        split, tuple(file.name for file in files), size, lambda on_bytes: read_rows(files, on_bytes)
    )


def _on_hub(source: DatasetSource, hub_id: str, revision: str | None, splits: list[str]) -> LocatedFiles:
    hub = Hub()
    found = hub.find(hub_id, revision, [source.files[split] for split in splits])
    parts: list[SplitFiles] = []
    for split in splits:
        names = [file for file in found.files if fnmatch.fnmatchcase(file.name, source.files[split])]
        files = HubFiles(found.repo_id, found.commit, tuple(names))
        if names:
            names = tuple(file.name for file in files.files)
            parts.append(SplitFiles(split, names, files.size, _hub_reader(hub, files)))
    return LocatedFiles(found.commit, tuple(parts))


def _hub_reader(hub: Hub, files: HubFiles) -> Callable[[OnBytes], Iterator[tuple[str, Row]]]:
    return lambda on_bytes: read_rows(hub.download(files), on_bytes)

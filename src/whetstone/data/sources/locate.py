"""Where the rows of a source are: files from here, or from the hub at one commit, split by split."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from whetstone.data.sources.hub import Hub, HubFiles
from whetstone.data.sources.rows import Row, local_files, read_rows
from whetstone.data.sources.source import Source
from whetstone.errors import UserError, did_you_mean

Heard = Callable[[int], None]


class Part(Struct, frozen=True):
    """The files of one split (``""``: of no known one), their bytes, and how they are read."""

    split: str
    files: tuple[str, ...]
    size: int
    read: Callable[[Heard], Iterator[tuple[str, Row]]]
    """Yields (place, row); hears how many bytes of the part were read."""


class Located(Struct, frozen=True):
    """The parts of a source, and the hub's commit (None: files from here)."""

    commit: str | None
    parts: tuple[Part, ...]


def choose_splits(source: Source, asked: Sequence[str] = ()) -> list[str]:
    """The splits of a source to read: those asked for, else ``train`` where there is one, else all.

    Raises UserError where the source has none of those asked for.
    """
    if not asked:
        return ["train"] if "train" in source.files else list(source.files)
    chosen = [split for split in source.files if split in asked]
    if not chosen:
        known = ", ".join(source.files)
        hint = did_you_mean(asked[0], source.files)
        raise UserError(f"{source.name} has no split {' nor '.join(asked)}{hint} (it has: {known})")
    return chosen


def locate(
    source: Source, path: Path | None, *, revision: str | None = None, splits: Sequence[str] = ()
) -> Located:
    """Find the rows of ``splits`` at ``path``, or on the hub where it is None.

    ``revision`` is the source's known one unless given. Raises UserError for what is not there.
    """
    if path is not None:
        if revision is not None:
            raise UserError(f"{source.name}: a revision is of the hub, and the files are from {path}")
        return Located(None, tuple(_local_parts(source, path, choose_splits(source, splits))))
    if source.hub_id is None:
        raise UserError(f"{source.name} is not on the hub: give its files, {source.name}=PATH")
    return _on_hub(source, source.hub_id, revision or source.revision, choose_splits(source, splits))


def _local_parts(source: Source, path: Path, splits: list[str]) -> Iterator[Part]:
    if source.read is not None:
        reader = source.read
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        yield Part("", (path.name,), 0, lambda heard: reader(path))
        return
    files = local_files(path, list(source.files.values()))
    by_split = {split: _matching(path, files, source.files[split]) for split in source.files}
    if path.is_file() or not any(by_split.values()):
        yield _files_part("", files)
        return
    found = [split for split in splits if by_split[split]]
    if not found:
        there = ", ".join(split for split, matching in by_split.items() if matching)
        raise UserError(
            f"{path}: holds no file of {' or '.join(splits)}, only of {there} (choose with --split)"
        )
    for split in found:
        yield _files_part(split, by_split[split])


def _matching(root: Path, files: list[Path], glob: str) -> list[Path]:
    if root.is_file():
        return []
    return [file for file in files if fnmatch.fnmatchcase(file.relative_to(root).as_posix(), glob)]


def _files_part(split: str, files: list[Path]) -> Part:
    size = sum(file.stat().st_size for file in files)
    return Part(split, tuple(file.name for file in files), size, lambda heard: read_rows(files, heard))


def _on_hub(source: Source, hub_id: str, revision: str | None, splits: list[str]) -> Located:
    hub = Hub()
    found = hub.find(hub_id, revision, [source.files[split] for split in splits])
    parts: list[Part] = []
    for split in splits:
        names = [file for file in found.files if fnmatch.fnmatchcase(file.name, source.files[split])]
        files = HubFiles(found.repo_id, found.commit, tuple(names))
        if names:
            names = tuple(file.name for file in files.files)
            parts.append(Part(split, names, files.size, _hub_reader(source, hub, files)))
    return Located(found.commit, tuple(parts))


def _hub_reader(source: Source, hub: Hub, files: HubFiles) -> Callable[[Heard], Iterator[tuple[str, Row]]]:
    def rows(heard: Heard) -> Iterator[tuple[str, Row]]:
        paths = hub.download(files)
        if source.read is not None:
            return itertools.chain.from_iterable(map(source.read, paths))
        return read_rows(paths, heard)

    return rows

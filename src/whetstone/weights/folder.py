"""Versions in a folder that publisher and replicas share: each is there whole, or not at all.

``full-000000000012/`` and ``delta-000000000012/`` hold a version's manifest and, for each shard, a file of
its parts in order. They are put in place by one rename.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from whetstone.errors import UserError
from whetstone.outputs import sync, unwritable, write_file
from whetstone.weights.manifest import Manifest, Mark, dump
from whetstone.weights.shelf import Reading, Shelf

READERS = "readers"
LENGTH_BYTES = 8
_NAME = re.compile(r"(full|delta)-(\d{12})")


class FolderPublisher:
    """Writes the versions of a shelf into ``root``.

    full_every: after as many deltas a full copy is written, too. keep: full copies that stay, with the deltas
    that lead on from the first of them. notes_s: a replica that reads leaves a note of what it reads, and
    renews it; what notes of that age name stays as well, until there are twice as many full copies.

    What another publisher left in the folder is removed with the first version, which is a full one.
    Raises UserError when the folder cannot be written.
    """

    def __init__(
        self, root: Path, shelf: Shelf, *, full_every: int = 16, keep: int = 2, notes_s: float = 60.0
    ) -> None:
        self._root, self._shelf = root, shelf
        self._full_every, self._keep, self._notes_s = full_every, keep, notes_s
        self._since_full, self._led, self._begun = -1, 0, False
        try:
            (root / READERS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(root, error) from None

    def put(self, manifest: Manifest) -> None:
        """Stage and announce what a publisher of one rank announced. Raises UserError; then the next version
        is written in full."""
        for form in self.due(manifest):
            self.stage(manifest.number, form.base, len(manifest.shards[0].parts))
            self.announce(form)

    def due(self, manifest: Manifest) -> list[Manifest]:
        """The forms in which a version is to be staged by every rank, and announced, in this order."""
        full = Manifest(
            manifest.model, manifest.number, None, manifest.tensors, manifest.shards, manifest.digest
        )
        # Until they are announced nothing can lead on from this version.
        since, self._since_full = self._since_full, -1
        if manifest.base is None or since < 0:
            return [full]
        self._led = since
        return [manifest, full] if since + 1 >= self._full_every else [manifest]

    def stage(self, number: int, base: Mark | None, parts: int, shard: int = 0) -> None:
        """Write one rank's shard of a version where no replica sees it yet. Raises UserError."""
        reading = self._shelf.open(number, base.number if base else None)
        try:
            write_file(self._staged(number, base) / f"shard-{shard}", _parts_file(reading, parts))
        finally:
            reading.close()

    def announce(self, manifest: Manifest) -> None:
        """Put a version in its place, when all of its shards are staged. Raises UserError."""
        staged = self._staged(manifest.number, manifest.base)
        target = self._root / staged.name.removeprefix(".").removesuffix(".tmp")
        write_file(staged / "manifest", [dump(manifest)])
        try:
            sync(staged)
            if target.exists():  # of a publisher that ended before this one began
                target.rename(self._root / f".{target.name}.old.tmp")
            staged.rename(target)
            sync(self._root)
        except OSError as error:
            raise unwritable(target, error) from None
        first, self._begun = not self._begun, True
        self._led = self._since_full = self._led + 1 if manifest.base else 0
        self._forget(manifest.number, alone=first)

    def _staged(self, number: int, base: Mark | None) -> Path:
        return self._root / f".{'delta' if base else 'full'}-{number:012d}.tmp"

    def _forget(self, number: int, *, alone: bool) -> None:
        """Remove what is too old and not read; all others, if this version is to be ``alone``."""
        for torn in self._root.glob(".*.tmp"):
            if not torn.name.endswith(f"-{number:012d}.tmp"):
                shutil.rmtree(torn, ignore_errors=True)
        there = versions(self._root)
        fulls = [n for kind, n in there if kind == "full"]
        oldest = fulls[-min(self._keep, len(fulls))]
        bound = fulls[-min(2 * self._keep, len(fulls))]
        oldest = number if alone else max(min([oldest, *self._read()]), bound)
        for kind, found in there:
            if found < oldest or (alone and (kind, found) != ("full", number)):
                _remove(self._root / f"{kind}-{found:012d}")

    def _read(self) -> Iterator[int]:
        """The versions that fresh notes name."""
        readers = self._root / READERS
        clock = readers / "clock"
        clock.write_bytes(b"")
        # The clock of the file system, which replicas on other hosts share.
        now = clock.stat().st_mtime
        for note in readers.glob("*.note"):
            with contextlib.suppress(OSError, ValueError):
                if now - note.stat().st_mtime > self._notes_s:
                    note.unlink()
                else:
                    yield int(note.read_bytes()[:20])


def versions(root: Path) -> list[tuple[str, int]]:
    """(full or delta, number) of what is there, the oldest first. Raises UserError for no such folder."""
    try:
        names = [_NAME.fullmatch(name) for name in os.listdir(root)]
    except OSError as error:
        raise UserError(f"{root}: {error.strerror}; give the folder that weights are published in") from None
    return sorted(((m[1], int(m[2])) for m in names if m), key=lambda found: (found[1], found[0]))


def _parts_file(reading: Reading, count: int) -> Iterator[bytes]:
    for index in range(count):
        data = reading.part(index)
        yield len(data).to_bytes(LENGTH_BYTES, "little")
        yield data


def _remove(folder: Path) -> None:
    """Out of sight at once, then gone: nobody finds a half of it."""
    hidden = folder.with_name(f".{folder.name}.old.tmp")
    with contextlib.suppress(OSError):
        folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)

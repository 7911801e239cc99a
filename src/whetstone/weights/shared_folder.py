"""Publishes versions in a folder shared by publisher and replicas, and reads them there.

``full-000000000012/`` and ``delta-000000000012/`` hold a version's manifest and, for each shard, a file of
its parts in order. A rename puts them in place, so each version appears atomically.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.outputs import sync, unwritable, write_file
from whetstone.weights.codec import max_part_bytes
from whetstone.weights.manifest import MANIFEST_BYTES, Manifest, VersionId, dump_manifest, load_manifest
from whetstone.weights.source import OnPart, PartKey, PublisherUnreachable, VersionEvicted
from whetstone.weights.streams import CorruptData
from whetstone.weights.version_store import VersionReading, VersionStore

READERS = "readers"
LENGTH_BYTES = 8
_NAME = re.compile(r"(full|delta)-(\d{12})")


class FolderPublisher:
    """Writes the versions of a store into ``root``.

    full_every: number of deltas after which a full copy is written too. keep: full copies to keep, with the
    deltas that follow the oldest of them. notes_s: a replica that reads writes a note with the version, and
    renews it. Versions in notes younger than this are kept too, up to twice ``keep`` full copies.

    Files of an earlier publisher are removed with the first version, which is a full copy. Raises UserError
    if the folder cannot be written.
    """

    def __init__(
        self, root: Path, store: VersionStore, *, full_every: int = 16, keep: int = 2, notes_s: float = 60.0
    ) -> None:
        self._root, self._store = root, store
        self._full_every, self._keep, self._notes_s = full_every, keep, notes_s
        self._since_full, self._deltas_since_full, self._announced_any = -1, 0, False
        try:
            (root / READERS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(root, error) from None

    def forms_to_write(self, manifest: Manifest) -> list[Manifest]:
        """Return the forms in which every rank must write a version, in the order of their announcement.

        After a failure to write or announce one, the next version is written in full.
        """
        full = msgspec.structs.replace(manifest, base=None)
        # A delta cannot follow a version that is not announced, so a failure here forces a full copy next.
        since, self._since_full = self._since_full, -1
        if manifest.base is None or since < 0:
            return [full]
        self._deltas_since_full = since
        return [manifest, full] if since + 1 >= self._full_every else [manifest]

    def stage(self, number: int, base: VersionId | None, parts: int, shard: int = 0) -> None:
        """Write one rank's shard of a version to a hidden folder. Raises UserError."""
        reading = self._store.open(number, base.number if base else None)
        try:
            write_file(self._staging_folder(number, base) / f"shard-{shard}", _parts_file(reading, parts))
        finally:
            reading.close()

    def announce(self, manifest: Manifest) -> None:
        """Rename a version into place once all of its shards are staged. Raises UserError."""
        staged = self._staging_folder(manifest.number, manifest.base)
        target = self._root / staged.name.removeprefix(".").removesuffix(".tmp")
        write_file(staged / "manifest", [dump_manifest(manifest)])
        try:
            sync(staged)
            # An earlier publisher left a version with this number.
            if target.exists():
                target.rename(self._root / f".{target.name}.old.tmp")
            staged.rename(target)
            sync(self._root)
        except OSError as error:
            raise unwritable(target, error) from None
        first, self._announced_any = not self._announced_any, True
        self._deltas_since_full = self._since_full = self._deltas_since_full + 1 if manifest.base else 0
        self._remove_old(manifest.number, only=first)

    def _staging_folder(self, number: int, base: VersionId | None) -> Path:
        return self._root / f".{'delta' if base else 'full'}-{number:012d}.tmp"

    def _remove_old(self, number: int, *, only: bool) -> None:
        """Remove old versions that no replica reads; with ``only``, all versions but this one."""
        for torn in self._root.glob(".*.tmp"):
            if not torn.name.endswith(f"-{number:012d}.tmp"):
                # Staged folders of other versions are left by a killed process.
                shutil.rmtree(torn, ignore_errors=True)
        there = versions(self._root)
        fulls = [n for kind, n in there if kind == "full"]
        oldest = fulls[-min(self._keep, len(fulls))]
        bound = fulls[-min(2 * self._keep, len(fulls))]
        # Notes of stuck readers must not make the folder grow without a bound.
        oldest = number if only else max(min([oldest, *self._versions_in_use()]), bound)
        for kind, found in there:
            if found < oldest or (only and (kind, found) != ("full", number)):
                _remove_folder(self._root / f"{kind}-{found:012d}")

    def _versions_in_use(self) -> Iterator[int]:
        """Yield the versions in current notes of replicas."""
        readers = self._root / READERS
        clock = readers / "clock"
        clock.write_bytes(b"")
        # File times come from the file system's clock, which all hosts share. Local clocks may differ.
        now = clock.stat().st_mtime
        for note in readers.glob("*.note"):
            with contextlib.suppress(OSError, ValueError):
                if now - note.stat().st_mtime > self._notes_s:
                    note.unlink()
                else:
                    yield int(note.read_bytes()[:20])


def versions(root: Path) -> list[tuple[str, int]]:
    """Return (full or delta, number) of the versions in a folder, oldest first. Raises UserError if it is
    missing."""
    try:
        names = [_NAME.fullmatch(name) for name in os.listdir(root)]
    except OSError as error:
        raise UserError(
            f"{root}: {error.strerror}; give the folder in which the trainer publishes weights"
        ) from None
    return sorted(((m[1], int(m[2])) for m in names if m), key=lambda found: (found[1], found[0]))


def _parts_file(reading: VersionReading, count: int) -> Iterator[bytes]:
    for index in range(count):
        data = reading.part(index)
        yield len(data).to_bytes(LENGTH_BYTES, "little")
        yield data


def _remove_folder(folder: Path) -> None:
    """Rename a folder to a hidden name, then delete it, so that no reader finds it incomplete."""
    hidden = folder.with_name(f".{folder.name}.old.tmp")
    with contextlib.suppress(OSError):
        folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


_POLL_S = 0.2
_RENEW_S = 10.0
# The publisher may remove versions between listing and reading them.
_ATTEMPTS = 8


class FolderSource:
    """A WeightSource in the folder ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._note = root / READERS / f"{os.getpid()}-{secrets.token_hex(8)}.note"
        self._noted_version = -1
        self._renewed_at = 0.0

    def plan(self, have: VersionId | None, wait_s: float = 0.0) -> list[Manifest]:
        """See Source."""
        until = time.monotonic() + wait_s
        while True:
            found = self._read_plan(have)
            left = until - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(_POLL_S, left))

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], on_part: OnPart) -> None:
        """See Source."""
        files: dict[int, _PartsFile] = {}
        try:
            for key in parts:
                self._renew_note(self._noted_version)
                if key[0] not in files:
                    path = self._folder(manifest.number, manifest.base is None) / f"shard-{key[0]}"
                    files[key[0]] = _PartsFile(path, len(manifest.shards[key[0]].parts))
                on_part(key, files[key[0]].read(key[1], max_part_bytes(*manifest.part_shape(*key))))
        except FileNotFoundError:
            raise VersionEvicted(f"version {manifest.number} is no longer in {self._root}") from None
        except OSError as error:
            raise PublisherUnreachable(f"{self._root}: cannot read weights: {error}") from None
        finally:
            for file in files.values():
                file.close()

    def close(self) -> None:
        """See Source."""
        self._noted_version = -1
        with contextlib.suppress(OSError):
            self._note.unlink()

    def _read_plan(self, have: VersionId | None) -> list[Manifest]:
        for _ in range(_ATTEMPTS):
            try:
                chain = self._chain(have)
                if not chain:
                    self.close()
                    return []
                self._renew_note(chain[0].number)
                # The publisher may have removed versions before it saw the note, so check that they exist.
                here = set(versions(self._root))
                if all(("delta" if m.base else "full", m.number) in here for m in chain):
                    return chain
            except FileNotFoundError:
                continue
            except OSError as error:
                raise PublisherUnreachable(f"{self._root}: cannot read weights: {error}") from None
        raise PublisherUnreachable(
            f"{self._root}: versions of weights are replaced faster than they can be read"
        )

    def _chain(self, have: VersionId | None) -> list[Manifest]:
        """Return the deltas from ``have`` to the newest version, or the last full copy and the deltas after
        it."""
        there = set(versions(self._root))
        newest = max((number for _, number in there), default=-1)
        chain: list[Manifest] = []
        wanted = newest
        while wanted >= 0:
            if ("delta", wanted) not in there:
                break
            manifest = self._manifest(wanted, full=False)
            assert manifest.base is not None
            if not chain and have == manifest.version_id:
                return []
            chain.append(manifest)
            if manifest.base == have:
                return chain[::-1]
            wanted = manifest.base.number
        fulls = [number for kind, number in there if kind == "full"]
        if not fulls:
            return []
        # The newest full copy has the fewest deltas after it.
        full = self._manifest(max(fulls), full=True)
        onward = [m for m in chain[::-1] if m.number > full.number]
        if onward and onward[0].base != full.version_id:
            # The deltas follow a full copy that is still being written.
            onward = []
        return [] if have == full.version_id and not onward else [full, *onward]

    def _manifest(self, number: int, *, full: bool) -> Manifest:
        with (self._folder(number, full) / "manifest").open("rb") as file:
            manifest = load_manifest(file.read(MANIFEST_BYTES))
        if manifest.number != number or (manifest.base is None) != full:
            raise CorruptData(f"the manifest of version {number} belongs to another version")
        return manifest

    def _folder(self, number: int, full: bool) -> Path:
        return self._root / f"{'full' if full else 'delta'}-{number:012d}"

    def _renew_note(self, number: int) -> None:
        """Write a note with the version that is read, so that the publisher keeps it."""
        now = time.monotonic()
        if number == self._noted_version and now - self._renewed_at < _RENEW_S:
            return
        # Without a note, a read-only folder relies on the number of versions that its publisher keeps.
        with contextlib.suppress(OSError):
            self._note.write_text(str(number))
        self._noted_version, self._renewed_at = number, now


class _PartsFile:
    """The parts in a shard's file. Raises OSError, and CorruptData if the file is incomplete."""

    def __init__(self, path: Path, count: int) -> None:
        self._file: BinaryIO = path.open("rb")
        end = path.stat().st_size
        self._places: list[tuple[int, int]] = []
        at = 0
        for _ in range(count):
            self._file.seek(at)
            size = int.from_bytes(self._file.read(LENGTH_BYTES), "little")
            at += LENGTH_BYTES
            # The lengths come from the file itself, so they are checked before anything is read.
            if at + size > end:
                self._file.close()
                raise CorruptData("a file of parts that ends early")
            self._places.append((at, size))
            at += size

    def read(self, part: int, most: int) -> bytes:
        start, size = self._places[part]
        if size > most:
            raise CorruptData("a part of an impossible size")
        self._file.seek(start)
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()

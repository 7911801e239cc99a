"""Reads versions from a shared folder that a publisher writes (``folder_publisher.py``)."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from whetstone.weights.codec import max_part_bytes
from whetstone.weights.folder_publisher import LENGTH_BYTES, READERS, versions
from whetstone.weights.manifest import MANIFEST_BYTES, Manifest, VersionId, load_manifest
from whetstone.weights.source import OnPart, PartKey, PublisherUnreachable, VersionEvicted
from whetstone.weights.streams import CorruptData

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

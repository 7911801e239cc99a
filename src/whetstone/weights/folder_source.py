"""Versions out of a shared folder that a publisher writes (``folder.py``)."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from whetstone.weights.codec import Damaged, most_bytes
from whetstone.weights.folder import LENGTH_BYTES, READERS, versions
from whetstone.weights.manifest import MANIFEST_BYTES, Manifest, Mark, load
from whetstone.weights.source import Gone, PartKey, Take, Unreachable

_POLL_S = 0.2
_RENEW_S = 10.0
_ATTEMPTS = 8


class FolderSource:
    """A Source in the folder ``root``. manifest_bytes: the largest manifest that is read."""

    def __init__(self, root: Path, *, manifest_bytes: int = MANIFEST_BYTES) -> None:
        self._root, self._manifest_bytes = root, manifest_bytes
        self._note = root / READERS / f"{os.getpid()}-{secrets.token_hex(8)}.note"
        self._reads = -1
        self._renewed = 0.0

    def plan(self, have: Mark | None, wait_s: float = 0.0) -> list[Manifest]:
        """See Source."""
        until = time.monotonic() + wait_s
        while True:
            found = self._plan(have)
            left = until - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(_POLL_S, left))

    def fetch(self, manifest: Manifest, parts: Iterable[PartKey], take: Take) -> None:
        """See Source."""
        files: dict[int, _Parts] = {}
        try:
            for key in parts:
                self._keep(self._reads)
                if key[0] not in files:
                    path = self._folder(manifest.number, manifest.base is None) / f"shard-{key[0]}"
                    files[key[0]] = _Parts(path, len(manifest.shards[key[0]].parts))
                take(key, files[key[0]].read(key[1], most_bytes(*manifest.part_shape(*key))))
        except FileNotFoundError:
            raise Gone(f"version {manifest.number} is no longer in {self._root}") from None
        except OSError as error:
            raise Unreachable(f"{self._root}: weights cannot be read: {error}") from None
        finally:
            for file in files.values():
                file.close()

    def close(self) -> None:
        """See Source."""
        self._reads = -1
        with contextlib.suppress(OSError):
            self._note.unlink()

    def _plan(self, have: Mark | None) -> list[Manifest]:
        for _ in range(_ATTEMPTS):
            try:
                chain = self._chain(have)
                if not chain:
                    self.close()
                    return []
                self._keep(chain[0].number)
                # Only what is still there once the note is can be relied on.
                here = set(versions(self._root))
                if all(("delta" if m.base else "full", m.number) in here for m in chain):
                    return chain
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Unreachable(f"{self._root}: weights cannot be read: {error}") from None
        raise Unreachable(f"{self._root}: versions of weights go faster than they can be read")

    def _chain(self, have: Mark | None) -> list[Manifest]:
        """Deltas from ``have`` to the newest version, or from the last full copy, with that."""
        there = set(versions(self._root))
        newest = max((number for _, number in there), default=-1)
        chain: list[Manifest] = []
        wanted = newest
        while wanted >= 0:
            if ("delta", wanted) not in there:
                break
            manifest = self._manifest(wanted, full=False)
            assert manifest.base is not None
            if not chain and have == manifest.mark:
                return []
            chain.append(manifest)
            if manifest.base == have:
                return chain[::-1]
            wanted = manifest.base.number
        fulls = [number for kind, number in there if kind == "full"]
        if not fulls:
            return []
        full = self._manifest(max(fulls), full=True)
        onward = [m for m in chain[::-1] if m.number > full.number]
        if onward and onward[0].base != full.mark:
            onward = []  # the next full copy is being written
        return [] if have == full.mark and not onward else [full, *onward]

    def _manifest(self, number: int, *, full: bool) -> Manifest:
        with (self._folder(number, full) / "manifest").open("rb") as file:
            manifest = load(file.read(self._manifest_bytes), self._manifest_bytes)
        if manifest.number != number or (manifest.base is None) != full:
            raise Damaged(f"the manifest of version {number} is that of another")
        return manifest

    def _folder(self, number: int, full: bool) -> Path:
        return self._root / f"{'full' if full else 'delta'}-{number:012d}"

    def _keep(self, number: int) -> None:
        """Note what is read, so that it stays."""
        now = time.monotonic()
        if number == self._reads and now - self._renewed < _RENEW_S:
            return
        with contextlib.suppress(OSError):  # a folder that may only be read: its versions stay for long
            self._note.write_text(str(number))
        self._reads, self._renewed = number, now


class _Parts:
    """The parts in a file of a shard. Raises OSError, and Damaged when it is torn."""

    def __init__(self, path: Path, count: int) -> None:
        self._file: BinaryIO = path.open("rb")
        end = path.stat().st_size
        self._places: list[tuple[int, int]] = []
        at = 0
        for _ in range(count):
            self._file.seek(at)
            size = int.from_bytes(self._file.read(LENGTH_BYTES), "little")
            at += LENGTH_BYTES
            if at + size > end:
                self._file.close()
                raise Damaged("a file of parts that ends early")
            self._places.append((at, size))
            at += size

    def read(self, part: int, most: int) -> bytes:
        start, size = self._places[part]
        if size > most:
            raise Damaged("a part of an impossible size")
        self._file.seek(start)
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()

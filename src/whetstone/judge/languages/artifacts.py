"""Stores the output of compilers by content, in a worker's memory and in a private folder of the user's
cache.

Only the judge writes to the folder. Programs and compilers return their output through a pipe. They can only
read kits, and no other part of the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from whetstone.sandbox.execute import File

_MEMORY_BYTES = 64 << 20
# The limit of the products on disk, over all workers and runs.
DISK_BYTES = 1 << 30
_MAX_KITS = 8
_PUTS_PER_SWEEP = 64
_DIGEST_BYTES = 32


class ArtifactStore:
    """Compiled products by key. An error of the disk counts as a miss: the compiler then runs again."""

    def __init__(self, directory: Path | None) -> None:
        """``directory`` None: memory only.

        Otherwise it becomes private; a folder of another user is not used.
        """
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._memory_used = 0
        self._put_count = 0
        self._checked_kits: set[str] = set()
        self.failed_kits: set[str] = set()
        """The kits that this process could not build. It then compiles without them."""
        self._products_folder = _private_folder(directory, "products", 0o700)
        self.kits = _private_folder(directory, "kits", 0o755)
        """The folder of kits, which compilers may read; None where nothing can be kept."""

    @classmethod
    def for_user(cls) -> ArtifactStore:
        """Return the store in the user's cache folder, ``$XDG_CACHE_HOME`` or ``~/.cache``."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return cls(Path(os.path.realpath(base)) / "whetstone" / "judge" if os.path.isabs(base) else None)

    def get(self, key: str) -> bytes | None:
        """Return the product with this key, a hexadecimal digest; None if there is none."""
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]
        data = self._read(key)
        if data is not None:
            self._keep_in_memory(key, data)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Store a product."""
        self._keep_in_memory(key, data)
        if self._products_folder is None:
            return
        with contextlib.suppress(OSError):
            _write(self._products_folder / key, hashlib.sha256(data).digest() + data)
            # A sweep reads the whole folder, so it does not run after each put.
            if self._put_count % _PUTS_PER_SWEEP == 0:
                self._sweep()
            self._put_count += 1

    def _keep_in_memory(self, key: str, data: bytes) -> None:
        if key not in self._memory and len(data) <= _MEMORY_BYTES // 4:
            self._memory[key] = data
            self._memory_used += len(data)
        while self._memory_used > _MEMORY_BYTES:
            self._memory_used -= len(self._memory.popitem(last=False)[1])

    def _read(self, key: str) -> bytes | None:
        if self._products_folder is None:
            return None
        path = self._products_folder / key
        try:
            data = path.read_bytes()
            # A power failure or a full disk may have damaged the file.
            if hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
                path.unlink()
                return None
            os.utime(path)  # marks the product as used: a sweep deletes the oldest ones first
        except OSError:
            return None
        return data[_DIGEST_BYTES:]

    def _sweep(self) -> None:
        """Delete the products that were not used for the longest time, down to four fifths of the limit."""
        assert self._products_folder is not None
        found = sorted(
            (entry.stat().st_mtime, entry.stat().st_size, entry.path)
            for entry in os.scandir(self._products_folder)
        )
        used = sum(size for _, size, _ in found)
        if used <= DISK_BYTES:
            return
        for _, size, path in found:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            used -= size
            if used <= DISK_BYTES * 4 // 5:
                return

    def kit(self, key: str) -> Path | None:
        """Return the folder of a stored kit; None if there is none or it is damaged."""
        if self.kits is None:
            return None
        folder = self.kits / key
        if key in self._checked_kits:
            return folder
        try:
            with contextlib.suppress(PermissionError):
                os.utime(folder)
            stored_digest = (folder / ".digest").read_text()
        except OSError:
            return None
        if _digest_of_folder(folder) != stored_digest:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        self._checked_kits.add(key)
        return folder

    def put_kit(self, key: str, files: Sequence[File]) -> Path | None:
        """Store the files of a kit in a folder of their own. Returns None if they cannot be stored."""
        if self.kits is None:
            return None
        try:
            folder = Path(tempfile.mkdtemp(prefix=".new-", dir=self.kits))
            for file in files:
                (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
                _write(folder / file.name, file.data, 0o644)
            _write(folder / ".digest", _digest_of_folder(folder).encode(), 0o644)
            folder.chmod(0o755)
            with contextlib.suppress(OSError):  # another worker was faster
                folder.rename(self.kits / key)
            shutil.rmtree(folder, ignore_errors=True)
            kits = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(self.kits))
            for _, path in kits[:-_MAX_KITS]:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            return None
        return self.kit(key)


def _private_folder(directory: Path | None, name: str, mode: int) -> Path | None:
    """Return a folder inside one that only this user can enter; None if that is not possible."""
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        found = directory.lstat()
        # A user who can write here can replace the executables that the judge runs. So the folder must be
        # private.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return None
        folder = directory / name
        folder.mkdir(mode=mode, exist_ok=True)
        folder.chmod(mode)
        return folder if os.access(folder, os.W_OK) else None
    except OSError:
        return None


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file completely or not at all, also if the power fails."""
    fd, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.rename(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _digest_of_folder(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".digest"):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()

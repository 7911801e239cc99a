"""What compilers made, kept by content: in a worker's memory and in a private folder of the user's cache.

The folder is only ever touched by the judge itself: programs and compilers hand their products out through a
pipe and see, read-only, no more of it than the kits.
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
_DISK_BYTES = 1 << 30
_KITS = 8
_PUTS_BETWEEN_SWEEPS = 64
_DIGEST_BYTES = 32


class ArtifactStore:
    """Products by key. Every fault of the disk is a miss: the compiler then runs again."""

    def __init__(self, directory: Path | None, disk_bytes: int = _DISK_BYTES) -> None:
        """``directory`` None: memory alone. It becomes ours alone, and is not used if another owns it."""
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._memory_used = 0
        self._disk_bytes = disk_bytes
        self._puts = 0
        self._checked_kits: set[str] = set()
        self._hopeless_kits: set[str] = set()
        self._products = _private_folder(directory, "products", 0o700)
        self.kits = _private_folder(directory, "kits", 0o755)
        """The folder of kits, which compilers may read; None where nothing can be kept."""

    @classmethod
    def of_user(cls) -> ArtifactStore:
        """The store in the user's cache folder, ``$XDG_CACHE_HOME`` or ``~/.cache``."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return cls(Path(os.path.realpath(base)) / "whetstone" / "judge" if os.path.isabs(base) else None)

    def get(self, key: str) -> bytes | None:
        """The product kept under ``key``, a hexadecimal digest; None when there is none."""
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]
        data = self._read(key)
        if data is not None:
            self._remember(key, data)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep a product."""
        self._remember(key, data)
        if self._products is None:
            return
        with contextlib.suppress(OSError):
            _write(self._products / key, hashlib.sha256(data).digest() + data)
            if self._puts % _PUTS_BETWEEN_SWEEPS == 0:
                self._sweep()
            self._puts += 1

    def _remember(self, key: str, data: bytes) -> None:
        if key not in self._memory and len(data) <= _MEMORY_BYTES // 4:
            self._memory[key] = data
            self._memory_used += len(data)
        while self._memory_used > _MEMORY_BYTES:
            self._memory_used -= len(self._memory.popitem(last=False)[1])

    def _read(self, key: str) -> bytes | None:
        if self._products is None:
            return None
        path = self._products / key
        try:
            data = path.read_bytes()
            if hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
                path.unlink()
                return None
            os.utime(path)  # used now: the oldest are the first to go
        except OSError:
            return None
        return data[_DIGEST_BYTES:]

    def _sweep(self) -> None:
        """Delete the products that were not used for longest, down to four fifths of the bound."""
        assert self._products is not None
        found = sorted(
            (entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(self._products)
        )
        used = sum(size for _, size, _ in found)
        if used <= self._disk_bytes:
            return
        for _, size, path in found:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            used -= size
            if used <= self._disk_bytes * 4 // 5:
                return

    def kit(self, key: str) -> Path | None:
        """The folder of a kit that was put before, whole; None when there is none."""
        if self.kits is None:
            return None
        folder = self.kits / key
        if key in self._checked_kits:
            return folder
        try:
            with contextlib.suppress(PermissionError):
                os.utime(folder)
            said = (folder / ".digest").read_text()
        except OSError:
            return None
        if _digest_of_folder(folder) != said:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        self._checked_kits.add(key)
        return folder

    def put_kit(self, key: str, files: Sequence[File]) -> Path | None:
        """Keep a kit's files in a folder of their own; None when they cannot be kept."""
        if self.kits is None:
            return None
        try:
            made = Path(tempfile.mkdtemp(prefix=".new-", dir=self.kits))
            for file in files:
                (made / file.name).parent.mkdir(parents=True, exist_ok=True)
                _write(made / file.name, file.data, 0o644)
            _write(made / ".digest", _digest_of_folder(made).encode(), 0o644)
            made.chmod(0o755)
            with contextlib.suppress(OSError):  # another worker was faster
                made.rename(self.kits / key)
            shutil.rmtree(made, ignore_errors=True)
            self._forget_old_kits()
        except OSError:
            return None
        return self.kit(key)

    def give_up_kit(self, key: str) -> None:
        """Note that this process could not make a kit: it goes without."""
        self._hopeless_kits.add(key)

    def gave_up_kit(self, key: str) -> bool:
        """Whether this process could not make a kit."""
        return key in self._hopeless_kits

    def _forget_old_kits(self) -> None:
        assert self.kits is not None
        kits = sorted((entry.stat().st_mtime, entry.path) for entry in os.scandir(self.kits))
        for _, path in kits[:-_KITS]:
            shutil.rmtree(path, ignore_errors=True)


def _private_folder(directory: Path | None, name: str, mode: int) -> Path | None:
    """A folder inside one that only we can enter; None where there can be none."""
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return None
        folder = directory / name
        folder.mkdir(mode=mode, exist_ok=True)
        folder.chmod(mode)
        return folder if os.access(folder, os.W_OK) else None
    except OSError:
        return None


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that is there whole or not at all, also after a power cut."""
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

"""Bases: immutable trees, stored once and named by their content."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from whetstone.sandbox.workspace import tree
from whetstone.sandbox.workspace.store import OwnFolder, Store, bases_below
from whetstone.sandbox.workspace.tree import Usage, WorkspaceError

MOST_BASE = Usage(2 << 30, 100_000)
"""The most bytes and entries of a base."""
# The time of all files of a base: it depends on the content alone.
_TIME_NS = 1_577_836_800 * 10**9
_GIT_TIMEOUT_S = 300
_CHUNK = 1 << 20
_GIT_ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


@dataclass(frozen=True)
class WorkspaceBase:
    """An immutable tree below ``root``: files, folders and symbolic links.

    ``name`` is the SHA-256 of its paths, kinds, executable bits, bytes and targets. Equal trees are stored
    once. All files have the same time and owner, and no other mode than the executable bit.
    """

    root: Path
    name: str

    @property
    def path(self) -> Path:
        """The folder with the tree. Do not change anything in it."""
        return bases_below(self.root) / self.name

    @classmethod
    def from_folder(cls, root: Path, folder: Path) -> WorkspaceBase:
        """Store a copy of a folder below ``root``. Links are kept and not followed.

        Raises WorkspaceError for pipes, sockets and devices and beyond ``MOST_BASE``, and OSError.
        """

        def fill(staging: Path) -> None:
            with tree.folder(str(folder)) as source, tree.folder(str(staging)) as target:
                if tree.measure(source, MOST_BASE).exceeds(MOST_BASE):
                    raise _too_large(str(folder))
                tree.copy(source, target)

        return store_base(root, fill)

    @classmethod
    def from_archive(cls, root: Path, archive: Path | bytes) -> WorkspaceBase:
        """Store the content of a tar archive, which may be compressed, below ``root``.

        Raises WorkspaceError for an archive with paths or links that lead out of it, with devices, beyond
        ``MOST_BASE``, or that is none; and OSError.
        """

        def fill(staging: Path) -> None:
            with io.BytesIO(archive) if isinstance(archive, bytes) else archive.open("rb") as file:
                _extract(file, staging)

        return store_base(root, fill)

    @classmethod
    def from_commit(cls, root: Path, repository: Path, commit: str) -> WorkspaceBase:
        """Store the files of a git commit below ``root``. No history comes with them.

        Raises WorkspaceError if git cannot give them, and as ``from_archive``.
        """
        if commit.startswith("-"):
            raise WorkspaceError(f"{commit!r} is no commit")
        command = ["git", "-C", str(repository), "archive", "--format=tar", commit, "--"]
        try:
            made = subprocess.run(
                command, capture_output=True, timeout=_GIT_TIMEOUT_S, env=os.environ | _GIT_ALONE, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            told = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()[-500:]
            raise WorkspaceError(f"git archive of {commit!r} in {repository}: {told or error}") from None
        return cls.from_archive(root, made.stdout)


def store_base(root: Path, fill: Callable[[Path], None]) -> WorkspaceBase:
    """Store the tree that ``fill`` makes in an empty folder. Raises what ``fill`` raises."""
    with OwnFolder(Store(root)) as own:
        staging = own.make_folder("base", 0o755)
        fill(staging)
        digest = hashlib.sha256()
        with tree.folder(str(staging)) as fd:
            _settle(fd, digest.update, MOST_BASE.disk_bytes)
            os.utime(fd, ns=(_TIME_NS, _TIME_NS))
        base = WorkspaceBase(root, digest.hexdigest())
        try:
            os.rename(staging, base.path)
        except OSError:
            if not base.path.is_dir():
                raise
    return base


def _settle(
    fd: int, hash_more: Callable[[bytes], None], most_bytes: int, prefix: str = "", depth: int = 0
) -> int:
    """Give everything in an open folder its mode, owner and time, and hash it.

    Returns how many of ``most_bytes`` are left; holes count, because they are hashed too. Raises
    WorkspaceError for a tree that is too deep, large or special.
    """
    if depth > tree.MOST_DEPTH:
        raise WorkspaceError(f"more than {tree.MOST_DEPTH} folders inside each other: {prefix[:200]!r}")
    for name in tree.names(fd):
        found = os.lstat(name, dir_fd=fd)
        tree.give(name, fd)
        path = os.fsencode(prefix + name)
        if stat.S_ISDIR(found.st_mode):
            hash_more(b"d%s\0" % path)
            with tree.folder(name, fd) as inner:
                most_bytes = _settle(inner, hash_more, most_bytes, f"{prefix}{name}/", depth + 1)
                os.fchmod(inner, 0o755)
        elif stat.S_ISREG(found.st_mode):
            if (most_bytes := most_bytes - found.st_size) < 0:
                raise _too_large("the tree")
            executable = bool(found.st_mode & 0o100)
            hash_more(b"%s%s\0%d\0" % (b"x" if executable else b"f", path, found.st_size))
            with tree.readable_file(name, fd) as file:
                while block := os.read(file, _CHUNK):
                    hash_more(block)
                os.fchmod(file, 0o755 if executable else 0o644)
        elif stat.S_ISLNK(found.st_mode):
            hash_more(b"l%s\0%s\0" % (path, os.fsencode(os.readlink(name, dir_fd=fd))))
        else:
            raise WorkspaceError(f"{prefix}{name} is a pipe, a socket or a device; no base has one")
        os.utime(name, ns=(_TIME_NS, _TIME_NS), dir_fd=fd, follow_symlinks=False)
    return most_bytes


def _extract(file: IO[bytes], staging: Path) -> None:
    """Extract an archive. The filter of ``tarfile`` refuses what leads out of the folder."""
    used = Usage()
    try:
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            for member in archive:
                used += Usage(tree.ENTRY_BYTES + max(member.size, 0), 1)
                if used.exceeds(MOST_BASE):
                    raise _too_large("the archive")
                archive.extract(member, staging, filter="data")
    except (tarfile.TarError, EOFError, ValueError, KeyError) as error:
        raise WorkspaceError(f"the archive cannot be extracted: {error}") from None


def _too_large(what: str) -> WorkspaceError:
    return WorkspaceError(
        f"{what} has more than {MOST_BASE.entries} entries or {MOST_BASE.disk_bytes >> 20} MiB; "
        "take out what the task does not need"
    )

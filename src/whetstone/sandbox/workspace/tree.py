"""Operations on a tree that a hostile program has made, from outside, while none of its processes runs.

A folder is opened by its name in an open folder and never through a link, so nothing leads out of the tree.
The cost is linear in the size of the tree, and the depth is bounded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from dataclasses import dataclass

from whetstone.sandbox.zygote.tmp_dir import empty_open_directory

MOST_DEPTH = 100
"""The most folders inside each other. A deeper tree counts as full."""
# Counted for each entry in addition to its blocks, so that their number is bounded by the bytes too.
ENTRY_BYTES = 1 << 12
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Overlayfs marks a folder that hides the one below it with this attribute.
_OPAQUE = "user.overlay.opaque"
_CHUNK = 1 << 20
# Errors of copy_file_range where the file system or the kernel cannot.
_CANNOT_SHARE = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


class WorkspaceError(Exception):
    """A path or a tree that a workspace refuses. The message says why, and what is allowed."""


@dataclass(frozen=True)
class Usage:
    """What a tree takes: bytes on disk, with a small amount for each entry, and entries."""

    disk_bytes: int = 0
    entries: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.disk_bytes + other.disk_bytes, self.entries + other.entries)

    def exceeds(self, most: Usage) -> bool:
        """Return whether it is more than ``most``."""
        return self.disk_bytes > most.disk_bytes or self.entries > most.entries


UNLIMITED = Usage(1 << 62, 1 << 62)
TOO_DEEP = Usage(1 << 63, 1 << 63)
"""What a tree with folders beyond ``MOST_DEPTH`` takes: more than any limit."""


@contextlib.contextmanager
def folder(path: str, parent: int | None = None) -> Generator[int]:
    """Open a folder, by its name in ``parent``, even if its mode forbids that to its owner."""
    fd = _open(path, _FOLDER, parent, 0o700)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def readable_file(name: str, parent: int) -> Generator[int]:
    """Open a regular file, by its name in ``parent``, even if its mode forbids that to its owner."""
    fd = _open(name, _FILE, parent, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def _open(name: str, flags: int, parent: int | None, mode: int) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        # By its descriptor, because a process may put a link in its place meanwhile.
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            if not stat.S_ISLNK(os.fstat(place).st_mode):
                os.chmod(f"/proc/self/fd/{place}", mode)
        finally:
            os.close(place)
        return os.open(name, flags, dir_fd=parent)


def names(fd: int) -> list[str]:
    """Return the names in a folder, in the order of their bytes."""
    return sorted(os.listdir(fd), key=os.fsencode)


def status(name: str, parent: int | None) -> os.stat_result | None:
    """Return the status of an entry, not following a link. None if there is none."""
    if parent is None:
        return None
    try:
        return os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return None


def is_whiteout(found: os.stat_result) -> bool:
    """Return whether this entry of a layer hides the one below it. No program can make such an entry."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(fd: int) -> bool:
    """Return whether this folder of a layer hides the contents of the one below it."""
    try:
        return os.getxattr(fd, _OPAQUE) == b"y"
    except OSError:
        return False


def make_opaque(fd: int) -> None:
    """Make this folder of a layer hide the contents of the one below it."""
    os.setxattr(fd, _OPAQUE, b"y")


def measure(fd: int, most: Usage, *, ended: bool = True, depth: int = 0) -> Usage:
    """Return what the tree below a folder takes. It stops as soon as this is more than ``most``.

    Not ``ended``: processes change it meanwhile. Entries that vanish count nothing then, and a folder that
    they close again counts as too deep.
    """
    if depth > MOST_DEPTH:
        return TOO_DEEP
    used = Usage()
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
                used += Usage(ENTRY_BYTES + found.st_blocks * 512, 1)
                if used.exceeds(most):
                    return used
                if stat.S_ISDIR(found.st_mode):
                    with folder(entry.name, fd) as inner:
                        left = Usage(most.disk_bytes - used.disk_bytes, most.entries - used.entries)
                        used += measure(inner, left, ended=ended, depth=depth + 1)
                        if used.exceeds(most):
                            return used
            except OSError as error:
                if ended:
                    raise
                if isinstance(error, PermissionError):
                    return TOO_DEEP
    return used


def copy(source: int, target: int, depth: int = 0, *, as_layer: bool = False) -> None:
    """Copy everything in one folder to another, with modes, times and the marks of overlayfs.

    ``as_layer``: copy it over what is there, as overlayfs shows a layer over a base. The owner of the second
    folder becomes the owner of the copies. Raises WorkspaceError for a tree that is too deep, and OSError.
    """
    if depth > MOST_DEPTH:
        raise WorkspaceError(f"more than {MOST_DEPTH} folders inside each other cannot be copied")
    owner = os.fstat(target).st_uid
    for name in names(source):
        found = os.lstat(name, dir_fd=source)
        is_folder = stat.S_ISDIR(found.st_mode)
        there = status(name, target) if as_layer else None
        if there is not None and not (is_folder and stat.S_ISDIR(there.st_mode)):
            remove(name, target)
            there = None
        if as_layer and is_whiteout(found):
            continue
        if stat.S_ISREG(found.st_mode):
            _copy_file(name, source, target, found, owner)
            continue
        if is_folder:
            if there is None:
                os.mkdir(name, 0o700, dir_fd=target)
                give(name, target)
            with folder(name, source) as inner, folder(name, target) as made:
                if is_opaque(inner):
                    (empty_open_directory if as_layer else make_opaque)(made)
                copy(inner, made, depth + 1, as_layer=as_layer)
        elif stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            give(name, target)
            continue
        else:
            os.mknod(name, stat.S_IFMT(found.st_mode) | 0o600, 0, dir_fd=target)
            give(name, target)
        os.chmod(name, found.st_mode & 0o777, dir_fd=target)
        os.utime(name, ns=(found.st_mtime_ns, found.st_mtime_ns), dir_fd=target)


def _copy_file(name: str, source: int, target: int, found: os.stat_result, owner: int) -> None:
    with readable_file(name, source) as file:
        made = os.open(name, _NEW_FILE, 0o600, dir_fd=target)
        try:
            _copy_bytes(file, made, found.st_size)
            if owner != os.geteuid():
                os.fchown(made, owner, owner)
            os.fchmod(made, found.st_mode & 0o777)
            os.utime(made, ns=(found.st_mtime_ns, found.st_mtime_ns))
        finally:
            os.close(made)


def _copy_bytes(source: int, target: int, size: int) -> None:
    """Copy what is in a file. Its holes stay holes."""
    at = end = 0
    while at < size:
        if at == end:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break  # the rest is a hole
                raise
            end = os.lseek(source, at, os.SEEK_HOLE)
        try:
            copied = os.copy_file_range(source, target, end - at, at, at)
        except OSError as error:
            if error.errno not in _CANNOT_SHARE:
                raise
            copied = os.pwrite(target, os.pread(source, min(end - at, _CHUNK), at), at)
        if not copied:
            break  # it has become shorter
        at += copied
    os.ftruncate(target, size)


def give(name: str, parent: int) -> None:
    """Give a new entry the owner of its folder. Only root can."""
    owner = os.fstat(parent).st_uid
    if owner != os.geteuid():
        os.chown(name, owner, owner, dir_fd=parent, follow_symlinks=False)


def give_all(fd: int, owner: int) -> None:
    """Make a user the owner of a folder and of everything below it. Only root can."""
    os.fchown(fd, owner, owner)
    for _, folders, others, inner in os.fwalk(dir_fd=fd):
        for name in (*folders, *others):
            os.chown(name, owner, owner, dir_fd=inner, follow_symlinks=False)


def remove(name: str, parent: int) -> None:
    """Remove an entry, with everything below it. Nothing happens if there is none."""
    found = status(name, parent)
    if found is None:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    with folder(name, parent) as inner:
        empty_open_directory(inner)
    os.rmdir(name, dir_fd=parent)
